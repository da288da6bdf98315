"""What Spark says when it refuses something, without its class, its plan and its query context."""

from __future__ import annotations

import re


def refused_by_spark(refusal: BaseException) -> str:
    """Shorten the message of an exception of Spark to one line."""
    text = re.split(r"SQLSTATE|;\s*line \d|\n== |\nJVM stacktrace|\n\n", str(refusal))[0]
    return re.sub(r"^\[[\w.]+\]\s*", "", re.sub(r"\s+", " ", text)).strip()
