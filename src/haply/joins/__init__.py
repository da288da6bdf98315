"""Engine-free operators: they take batches of models and return index pairs, without Spark."""

from haply.joins.operators.pair import PairJoin, PairResult
from haply.joins.operators.position import PositionJoin, PositionResult, join_positions
from haply.joins.operators.similarity import SimilarityJoin, SimilarityResult
from haply.joins.operators.timing import TimingJoin, TimingResult
from haply.joins.operators.tumbling import TumblingJoin
from haply.joins.operators.window import WindowJoin, WindowResult, join_windows, uniform_windows

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
