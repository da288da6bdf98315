"""Texts that are almost queries."""

from __future__ import annotations

import random
import re

_TEXT = (
    "SELECT FROM WHERE WITH THRESHOLD STRICT AND OR NOT WINDOW PROB GAUSSIAN DISTANCE JOIN ON AS ORDER BY LIMIT LEFT "
    "BETWEEN IN IS NULL CASE WHEN END GROUP KEEP ASOF SAME DENSITY LOOKBACK P_ANY abs a b t x id 0.5 3 1e400 .5 'text' "
    "`name` ( ) , . * = < <= | || -- /* + - ** [ ] :: ; é \x00 \n $ @ # ? : { } \\ ' ` \" 0x1 X'1F' INTERVAL DAY"
)
WORDS = _TEXT.split(" ")


def mutated(text: str, chance: random.Random) -> str:
    """The text with a few tokens or characters left out, doubled, replaced or swapped."""
    pieces = re.findall(r"\w+|\s+|[^\w\s]", text)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(pieces))
        match chance.randrange(5):
            case 0:
                del pieces[at]
            case 1:
                pieces.insert(at, chance.choice(WORDS) + " ")
            case 2:
                pieces[at] = chance.choice(WORDS)
            case 3:
                other = chance.randrange(len(pieces))
                pieces[at], pieces[other] = pieces[other], pieces[at]
            case _:
                pieces[at] = pieces[at][: chance.randint(0, len(pieces[at]))]
        pieces = pieces or [" "]
    return "".join(pieces)
