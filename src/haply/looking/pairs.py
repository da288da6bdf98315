"""``hp.threshold_chart``, ``hp.map`` and ``hp.explore``: pictures of all pairs of a join."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from haply.errors import HaplyError
from haply.inputs import number_column, table_of
from haply.models import Certain
from haply.models.columns import read_column
from haply.planning.frames import Field, Frame, Tabular, field_of, find_column, names_of, position_model, quoted

if TYPE_CHECKING:
    import altair

PROBABILITIES = ("probability", "p_match")
"""The columns of probabilities in results of ``hp.join`` and ``hp.match``."""
_MOST_PAIRS = 500_000
"""The most pairs that a browser can hold."""


def threshold_chart(pairs: Tabular, *, probability: str | None = None) -> altair.VConcatChart:
    """Draw how many pairs are kept at each threshold, and how many of them are expected to be right.

    The expected share of right pairs is the mean of their probabilities.

    Parameters
    ----------
    pairs
        A result of ``hp.join`` or ``hp.match``, or any table with a column of probabilities. With a Spark DataFrame,
        only sums leave the workers. Rows without a probability are left out.
    probability
        The column of probabilities. By default it is ``probability`` or ``p_match``.

    Returns
    -------
    altair.VConcatChart
        Two charts, one below the other; ``.save("file.svg")`` writes them.

    Raises
    ------
    HaplyError
        If there is no column of probabilities.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> chart = hp.threshold_chart(pa.table({"probability": [0.2, 0.6, 0.9]}))
    >>> chart.to_dict()["title"]["text"]
    'At 0.5, 2 of 3 pairs are kept; 75% should be right'
    """
    from haply.report.thresholds import AddingUp, threshold_records
    from haply.report.thresholds import threshold_chart as draw

    frame = table_of(pairs, "The table of pairs")
    column = probability_column(frame, probability)
    return draw(threshold_records(frame.totals([column], AddingUp(column))))


def map(pairs: Tabular, left: str | None = None, right: str | None = None, *, most: int = 300) -> altair.LayerChart:
    """Draw the positions of pairs with their errors, and lines between partners.

    Parameters
    ----------
    pairs
        A result of ``hp.join`` or ``hp.match``, or any table with two columns of positions.
    left, right
        The columns of the left and the right positions: points, models of them, or positions on the sky. Not needed
        where just two columns hold positions.
    most
        How many pairs are drawn: the likeliest, if there is a column ``probability`` or ``p_match``.

    Returns
    -------
    altair.LayerChart
        A map, on which an ellipse holds 68% of a position; ``.save("file.svg")`` writes it.

    Raises
    ------
    HaplyError
        If a column holds no positions, or if no pair has two of them.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> pairs = pa.table({"here": [[0.0, 0.0]], "there": [[3.0, 4.0]], "probability": [0.9]})
    >>> hp.map(pairs).to_dict()["title"]["text"]
    '1 pair of positions'
    """
    from haply.report.maps import pair_map

    frame = table_of(pairs, "The table of pairs")
    if left is None or right is None:
        left, right = _two_positions(frame)
    names = [find_column(frame, name, "given") for name in (left, right)]
    for name in names:
        if not _holds_positions(field_of(frame, name)):
            raise HaplyError(
                f"Column '{name}' holds no positions",
                expected="points, hp.gaussian_nd, hp.mixture_nd, hp.samples or hp.sky",
                found=field_of(frame, name).text,
            )
    both = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in names)
    known = frame.where(both)
    count = known.count_rows()
    likely = next((name for name in PROBABILITIES if name in names_of(frame)), None)
    if likely is not None and count > most:
        known = known.ordered([(quoted(likely), True, False)]).limit(most)
    shown = known.gathered(names, most)
    if not shown.num_rows:
        raise HaplyError("No pair has two positions", expected="at least one")
    return pair_map([read_column(shown[name]).model for name in names], names, count)


def _two_positions(frame: Frame) -> list[str]:
    """Find the columns of positions, if there are just two."""
    found = [field.name for field in frame.fields if _holds_positions(field)]
    if len(found) != 2:
        raise HaplyError(
            "Which columns to draw is not clear",
            expected="a table with two columns of positions",
            found=", ".join(found) or "none",
            hint='name them, as in hp.map(pairs, "pos_left", "pos_right")',
        )
    return found


def _holds_positions(field: Field) -> bool:
    return position_model(field) not in (None, Certain)


def explore(
    pairs: Tabular,
    path: str | Path,
    *,
    title: str | None = None,
    probability: str | None = None,
    left: str | None = None,
    right: str | None = None,
) -> Path:
    """Write a page on which pairs can be explored in a browser, without a network.

    A slider moves the threshold. A histogram, a map of positions and a table of the pairs follow it, and a selected
    pair is explained.

    Parameters
    ----------
    pairs
        A result of ``hp.join`` or ``hp.match``, or any table with a column of probabilities, of at most 500,000 rows.
        Rows without a probability are those of an outer join that have no partner.
    path
        The file to write: one self-contained HTML page.
    title
        The heading of the page.
    probability
        The column of probabilities. By default it is ``probability`` or ``p_match``.
    left, right
        The columns that were compared, as they are called in the pairs. By default they are found by their names:
        ``temp_left`` and ``temp_right``, or the only two columns of models.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    HaplyError
        If there is no column of probabilities, or if there are too many pairs.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa, tempfile
    >>> pairs = pa.table({"id_left": [1, 2], "id_right": [7, 8], "probability": [0.9, 0.4]})
    >>> page = hp.explore(pairs, tempfile.mkdtemp() + "/pairs.html")
    >>> page.name
    'pairs.html'
    """
    from haply.report.explore import ExploredPairs

    frame = table_of(pairs, "The table of pairs")
    column = probability_column(frame, probability)
    compared = [None if name is None else find_column(frame, name, "given") for name in (left, right)]
    table = frame.gathered(names_of(frame), _MOST_PAIRS + 1)
    if table.num_rows > _MOST_PAIRS:
        raise HaplyError(
            "There are too many pairs for a page",
            expected=f"at most {_MOST_PAIRS:,}",
            hint="filter them by their probability, or take a sample",
        )
    found = ExploredPairs.of(table.combine_chunks(), column, (compared[0], compared[1]))
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(found.page(title or "Pairs"), encoding="utf-8")
    return target


def probability_column(frame: Frame, given: str | None) -> str:
    """Return the column of probabilities."""
    if given is not None:
        return number_column(frame, given)
    known = names_of(frame)
    found = next((name for name in PROBABILITIES if name in known), None)
    if found is None:
        raise HaplyError(
            "The table has no column of probabilities",
            expected=" or ".join(PROBABILITIES),
            found=", ".join(known),
            hint='name it with probability="p", or --probability p on the command line',
        )
    return number_column(frame, found)
