"""Small files in the formats of SQuAD and HotpotQA, each answer in one paragraph only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SQUAD = Path(__file__).parents[3] / "shared" / "data" / "squad_dev_v2.json"
"""The real file, if this machine has it."""

TOWNS = "Arden Belmor Corvin Dunmere Elsby Farrow Grantley Hexford Ilmore Jarrow Kelby Lorne".split()
THINGS = "bridge market museum harbour library theatre".split()
BUILDERS = (
    "Abel Baines Calder Dorrit Esmond Fenner Garrow Hobbes Innes Judd Kemble Larkin Mercer Nye Oakes Pryor Quiller "
    "Rook Sayer Tulley Udall Verrill Wick Yelland"
).split()


def paragraph(town: str, thing: str, number: int) -> tuple[str, str, str]:
    """A text, the name of its builder, and the year: both are in no other paragraph."""
    builder, year = f"{BUILDERS[number % 24]} {BUILDERS[(number // 24 + 7 * number + 1) % 24]}son", str(1500 + number)
    text = (
        f"The {thing} of {town} was finished in {year}. It was the work of {builder}, who had learned the trade abroad "
        f"and came home with new ideas. Visitors to {town} still ask for the {thing} before anything else, although "
        "the weather on the coast is seldom kind to them, and the guides like to tell how long it took."
    )
    return text, builder, year


def squad(path: Path, *, extra: list[dict[str, Any]] | None = None) -> Path:
    """Twelve articles of six paragraphs, two questions each; `extra` articles as they are."""
    data, number = [], 0
    for town in TOWNS:
        paragraphs = []
        for thing in THINGS:
            text, builder, year = paragraph(town, thing, number)
            number += 1
            paragraphs.append(
                {
                    "context": text,
                    "qas": [
                        {"question": f"Who built the {thing} of {town}?", "id": f"a{number}", "is_impossible": False,
                         "answers": [{"text": builder, "answer_start": 0}, {"text": builder, "answer_start": 0}]},
                        {"question": f"When was the {thing} of {town} finished?", "id": f"b{number}",
                         "answers": [{"text": year, "answer_start": 0}]},
                        {"question": f"Who burned the {thing} of {town} down?", "id": f"c{number}",
                         "is_impossible": True, "answers": []},
                    ],
                }
            )  # fmt: skip
        data.append({"title": f"The_town_of_{town}", "paragraphs": paragraphs})
    path.write_text(json.dumps({"version": "v2.0", "data": data + (extra or [])}))
    return path


def hotpot(path: Path) -> Path:
    """Forty questions of two documents each, with four others around them."""
    questions = []
    for number in range(40):
        town, thing = TOWNS[number % 12], THINGS[number // 12]
        text, builder, _ = paragraph(town, thing, number)
        about = (
            f"{builder} was born in the valley of Glen{BUILDERS[number % 24].lower()}{number}. The valley is narrow "
            "and the winters in it are long, as everybody who has lived there will say when asked about it."
        )
        context: list[tuple[str, list[str]]] = [
            (f"{thing} of {town}", text.split(". ")), (builder, [about]),
            *((f"Note {number}.{other}", [f"Note number {number} {other} says little about any town. ",
                                         "It is here to be passed over by whoever reads."]) for other in range(4)),
        ]  # fmt: skip
        questions.append(
            {
                "_id": f"q{number}", "type": "bridge", "level": "hard",
                "question": f"In which valley was the builder of the {thing} of {town} born?",
                "answer": f"Glen{BUILDERS[number % 24].lower()}{number}",
                "supporting_facts": [[f"{thing} of {town}", 1], [builder, 0]],
                "context": context,
            }
        )  # fmt: skip
    questions.append({**questions[0], "_id": "yes", "question": "Is the bridge of Arden a bridge?", "answer": "yes"})
    path.write_text(json.dumps(questions))
    return path
