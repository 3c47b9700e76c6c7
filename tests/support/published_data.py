"""Small data files in the exact formats of LongBench, LongBench v2 and InfiniteBench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def _context(number: int, words: int) -> str:
    return " ".join(f"word{n}" for n in range(words)) + f" Keeper {number} keeps lamp {number}."


def longbench_row(number: int, words: int = 300, **changes: Any) -> dict[str, Any]:
    return {
        "input": f"Who keeps lamp {number}?",
        "context": _context(number, words),
        "answers": [f"Keeper {number}"],
        "length": words,
        "dataset": "hotpotqa",
        "language": "en",
        "all_classes": None,
        "_id": f"{number:048x}",
    } | changes


def longbench_v2_row(number: int, words: int = 300) -> dict[str, Any]:
    return {
        "_id": str(number),
        "domain": "Single-Document QA",
        "sub_domain": "Legal",
        "difficulty": ("easy", "hard")[number % 2],
        "length": "short",
        "question": f"Who keeps lamp {number}?",
        **{f"choice_{letter}": f"Keeper {n}" for n, letter in enumerate("ABCD")},
        "answer": "ABCD"[number % 4],
        "context": _context(number, words),
    }


def infinitebench_row(number: int, words: int = 300) -> dict[str, Any]:
    return {
        "id": number,
        "context": _context(number, words),
        "input": f"Who keeps lamp {number}?",
        "answer": [f"Keeper {number}"],
        "options": ["Ann", "Bo", "Cy", "Di"],
    }


def write_rows(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
