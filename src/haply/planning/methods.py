"""Which method finds the pairs of a condition."""

from __future__ import annotations

from haply.errors import HaplyError
from haply.joins.cells.difference import DifferenceMethod
from haply.joins.cells.method import Method
from haply.joins.cells.positions import NORMALS, PositionsMethod
from haply.joins.cells.samples import SamplesMethod
from haply.models import Certain, Model, Samples
from haply.planning.frames import Field, Frame, field_of
from haply.planning.pairs import PairPlan, Side
from haply.pruning.threshold import Threshold
from haply.query.conditions import JoinCondition


def position_model(field: Field) -> type[Model] | None:
    """Return the model of a column of positions: normals and mixtures, samples, certain points and numbers."""
    model = field.point_model
    return model if model in (*NORMALS, Certain, Samples) else None


def method_for(
    condition: JoinCondition, left: Frame, right: Frame, threshold: Threshold, exact: bool, strategy: str = "auto"
) -> tuple[Method | None, Side, Side]:
    """Choose how the pairs of a condition are found, and return it with both sides."""
    compared = condition.compared
    if compared is None:
        return None, Side("left", left), Side("right", right)
    fields = field_of(left, compared.left), field_of(right, compared.right)
    found = [field.model if condition.difference is not None else position_model(field) for field in fields]
    assert found[0] is not None
    assert found[1] is not None
    models = found[0], found[1]
    method: Method
    if condition.difference is not None:
        method = DifferenceMethod(condition.difference.region, threshold, exact, models, strategy)
    else:
        assert condition.distance is not None
        kind = PositionsMethod if any(model in NORMALS for model in models) else SamplesMethod
        method = kind(condition.distance, threshold, exact, models)
    return method, Side("left", left, compared.left, models[0]), Side("right", right, compared.right, models[1])


def check_broadcast(join: PairPlan) -> None:
    """Refuse to broadcast a table where rows far apart match."""
    if join.broadcast is not None and join.method is not None and join.method.has_sure_pairs:
        raise HaplyError(
            "A table is broadcast for conditions that hold for values near each other",
            expected="a distance, or a difference within a band",
            found=join.condition_text(),
            hint="leave out broadcast",
        )
