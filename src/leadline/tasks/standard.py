"""The suite `standard`: what `leadline run --model MODEL` measures when no task is named.

One family of each kind of demand: find one of several keys, find all values, follow a chain, count over the whole text,
answer a question, and combine facts. It needs no data, fits from 1k on, and stops as soon as the effective length is
certain.
"""

from __future__ import annotations

from leadline.core.lengths import AUTO
from leadline.core.spec import Suite

NAME = "standard"
STANDARD = Suite(
    name=NAME,
    summary="keys, values, chains, counting, questions, combined facts; lengths and reading that fit the model, until "
    "the effective length is certain",
    values={
        "tasks": [
            "niah_multikey_1",
            "niah_multivalue",
            "vt",
            {"name": "fwe", "placement": "anywhere"},
            "qa_fiction_1",
            "worlds",
        ],
        "lengths": AUTO,
        "depths": 3,
        "reading": AUTO,
        "until": "effective",
    },
    optional=("worlds",),
)
