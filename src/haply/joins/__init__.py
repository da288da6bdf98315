"""Engine-free operators: they take batches of models and return index pairs, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {
    "pair": ("PairJoin", "PairResult"),
    "position": ("PositionJoin", "PositionResult", "join_positions"),
    "similarity": ("SimilarityJoin", "SimilarityResult"),
    "timing": ("TimingJoin", "TimingResult"),
    "tumbling": ("TumblingJoin",),
    "window": ("WindowJoin", "WindowResult", "join_windows", "uniform_windows"),
}


def __getattr__(name: str) -> Any:
    """Import an operator on its first use, so that importing a module of this package does not import all of them."""
    import importlib

    for module, names in _MODULES.items():
        if name in names:
            found = getattr(importlib.import_module(f"haply.joins.operators.{module}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module 'haply.joins' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
