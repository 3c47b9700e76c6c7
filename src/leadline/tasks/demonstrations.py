"""A solved example before the document: what it is put together from, in our words or in a user's."""

from __future__ import annotations

from collections.abc import Sequence

from leadline.tasks.values import listed
from leadline.tasks.wording import Part

DEMONSTRATION = "{instruction}{document}{question}\n{prefix} {answer}.\n\nThat was an example. Now do the same with "


def demonstration_part(another: str) -> Part:
    """`another` is what the next one is: another text, another list."""
    return Part(
        (f"{DEMONSTRATION}{another}.\n\n",),
        needs=("document", "question", "answer|spaced|numbered"),
        may=("instruction", "prefix"),
        opens=True,
    )


def answers(found: Sequence[str]) -> dict[str, str]:
    """An answer as a demonstration may print it: `a, b and c`, `a b c`, `1. a 2. b 3. c`."""
    return {
        "answer": listed(list(found)),
        "spaced": " ".join(found),
        "numbered": " ".join(f"{number}. {one}" for number, one in enumerate(found, 1)),
    }
