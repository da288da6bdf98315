"""The last event before each time (see ``planning.answers.asof``), on the local engine."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from haply.engines.local.answers.source import PairSource
from haply.engines.local.answers.weighed import LocalWeighed
from haply.engines.local.frame import LocalFrame
from haply.joins.cells.rows import row_states
from haply.models.ragged import as_arrow
from haply.planning.answers.asof import AsofPlan
from haply.planning.answers.join import ROW_IDS
from haply.planning.frames import SideName


class LocalAsof(LocalWeighed):
    """Runs a join by the last event."""

    join: AsofPlan
    source = PairSource()

    def weighed(self) -> tuple[pa.Table, np.ndarray]:
        """Return all pairs with their probabilities, and the probability of any event of each left row."""
        plan = self.join
        tables = {"left": self._rows_of("left"), "right": self._rows_of("right")}
        found = plan.asked.pairs(
            tables["left"], tables["right"], plan.times, len(plan.keys), plan.ordered_events
        )  # fmt: skip
        rows = {"left": as_arrow(found.left), "right": as_arrow(found.right)}
        columns = {one.name: tables[one.side][one.column].take(rows[one.side]) for one in plan.wide}
        columns |= {name: tables[side][name].take(rows[side]) for side, name in ROW_IDS.items()}
        columns |= {"probability": as_arrow(found.probability), "p_any": as_arrow(found.some[found.left])}
        if self.funnel is not None:
            self.funnel.start_over()
            counts = {"rows_left": tables["left"].num_rows, "rows_right": tables["right"].num_rows}
            counts["candidates"] = counts["evaluated"] = len(found.left)
            self.funnel.follow(lambda: counts)
        return pa.table(columns), found.some

    def _rows_of(self, side: SideName) -> pa.Table:
        plan, frame = self.join, self.join.side(side)
        assert isinstance(frame, LocalFrame)
        table = frame.table(plan.needed(side)).combine_chunks()
        at = 0 if side == "left" else 1
        if plan.node.options.invalid == "raise":
            row_states(table[plan.times[at]], f"Column '{plan.times[at]}' of the {side} table")
        for number, key in enumerate(plan.keys):
            table = table.append_column(f"__key{number}", table[key[at]])
        return table
