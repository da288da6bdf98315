"""Engine-free operators: they take batches of models and return index pairs, without Spark."""

from haply.joins.pair import PairJoin, PairResult
from haply.joins.position import PositionJoin, PositionResult, join_positions
from haply.joins.similarity import SimilarityJoin, SimilarityResult
from haply.joins.timing import TimingJoin, TimingResult
from haply.joins.tumbling import TumblingJoin
from haply.joins.window import WindowJoin, WindowResult, join_windows, uniform_windows

__all__ = [
    "PairJoin",
    "PairResult",
    "PositionJoin",
    "PositionResult",
    "SimilarityJoin",
    "SimilarityResult",
    "TimingJoin",
    "TimingResult",
    "TumblingJoin",
    "WindowJoin",
    "WindowResult",
    "join_positions",
    "join_windows",
    "uniform_windows",
]
