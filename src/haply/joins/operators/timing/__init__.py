"""The timing join (PTJoin) as an operator: push events whose times are uncertain, get those likely close in time."""

from __future__ import annotations

from haply.joins.operators.timing.join import TimingJoin, TimingResult
from haply.joins.operators.timing.stored import last_times, latest_times, reach_back

__all__ = ["TimingJoin", "TimingResult", "last_times", "latest_times", "reach_back"]
