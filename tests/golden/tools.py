"""What the golden tests share: comparing with what is stored, digests, frozen runs, and a text that never changes.

    LEADLINE_BLESS=1 .venv/bin/pytest tests/golden       stores what is found now as what is expected

Only bless a change that is meant, one file at a time (`pytest tests/golden/test_golden_runs.py -k answers`), and read
the difference before committing it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from golden.doors import Question, say

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"
FROZEN = HERE / "runs"
TOKENIZERS = HERE / "tokenizers"
BLESS = os.environ.get("LEADLINE_BLESS", "") not in ("", "0")

ENUMS = frozenset({"bound", "kind", "outcome", "verdict", "clusters", "outliers", "metric", "centre"})
"""Keys whose strings are compared too. All other strings are sentences and may be reworded."""
VOLATILE = frozenset({"created", "ended", "figures", "folder", "run", "seconds", "started"})


# --- comparing ----------------------------------------------------------------------------------


def check(name: str, key: str, found: Any, *, tolerance: float = 1e-8, ending: tuple[str, ...] = ()) -> None:
    """`found` is what `expected/NAME.json` has under `key`; with LEADLINE_BLESS=1 it is stored there. With `ending`, it
    is the part of it whose keys end so."""
    path = EXPECTED / f"{name}.json"
    stored: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    made = json.loads(json.dumps(found, allow_nan=False))
    if BLESS:
        assert "PYTEST_XDIST_WORKER" not in os.environ, "bless without -n: several processes would write one file"
        stored[key] = {**_without(stored.get(key, {}), ending), **made} if ending else made
        EXPECTED.mkdir(exist_ok=True)
        path.write_text(json.dumps(stored, indent=1, sort_keys=True, ensure_ascii=True) + "\n")
        return
    assert key in stored, f"{path.name} has nothing under {key!r}; LEADLINE_BLESS=1 stores it"
    expected = {k: v for k, v in stored[key].items() if k.endswith(ending)} if ending else stored[key]
    differences = list(_differences(expected, made, tolerance))
    shown = "\n".join(differences[:20])
    assert not differences, f"{len(differences)} values of {key!r} differ from {path.name}:\n{shown}"


def _without(values: Mapping[str, Any], ending: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not key.endswith(ending)}


def check_names(name: str, found: Sequence[str]) -> None:
    """Nothing that is stored has gone, and nothing is there that is not stored."""
    path = EXPECTED / f"{name}.json"
    stored = json.loads(path.read_text())
    if BLESS:
        kept = {key: value for key, value in stored.items() if key in found}
        path.write_text(json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=True) + "\n")
        return
    assert sorted(stored) == sorted(found)


def _differences(stored: Any, found: Any, tolerance: float, path: str = "") -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(found, dict):
        for key in sorted(stored.keys() | found.keys()):
            inner = f"{path}/{key}"
            if key not in found:
                yield f"{inner}: was {stored[key]!r}, is gone"
            elif key not in stored:
                yield f"{inner}: is new, {found[key]!r}"
            else:
                yield from _differences(stored[key], found[key], tolerance, inner)
    elif _is_number(stored) and _is_number(found):
        if not math.isclose(stored, found, rel_tol=tolerance, abs_tol=tolerance * 1e-2):
            yield f"{path}: was {stored!r}, is {found!r}"
    elif stored != found:
        yield f"{path}: was {stored!r}, is {found!r}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def numbers(value: Any, path: str = "", *, keep: frozenset[str] = ENUMS) -> dict[str, Any]:
    """Every number in a nest of dicts and lists, by its path and to nine digits, and the strings of some keys."""
    return dict(_numbers(value, path, "", keep))


def _numbers(value: Any, path: str, name: str, keep: frozenset[str]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if str(key) not in VOLATILE:
                yield from _numbers(inner, f"{path}/{key}", str(key), keep)
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _numbers(inner, f"{path}/{number}", name, keep)
    elif isinstance(value, bool) or value is None:
        yield path, value
    elif isinstance(value, (int, float)):
        yield path, rounded(value)
    elif isinstance(value, str) and name in keep:
        yield path, value


def rounded(value: float) -> int | float | str:
    """To nine significant digits; what JSON has no number for, as a word."""
    if isinstance(value, int):
        return value
    return float(f"{value:.9g}") if math.isfinite(value) else str(value)


def digest(value: Any) -> str:
    """Sixteen hex digits of a value that JSON can hold. Not Leadline's own digest, which may change."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def frozen_labels(question: Question) -> dict[str, str]:
    """The labels of a question in the form of the stored digests: with the fields that grade the answer, as text."""
    labels = question.tags
    if "code_word" in labels:
        labels["opening"] = labels.pop("code_word")
    if question.choices:
        joined, listed = ",".join(question.choices), json.dumps(question.choices, ensure_ascii=False)
        labels |= {"choices": joined} if question.family == "worlds" else {"classes": listed}
    if question.reference is not None:
        labels["reference"] = json.dumps(question.reference, ensure_ascii=False)
    if question.dataset == "graphwalks":
        labels["reference"] = json.dumps(question.targets)
    return labels


# --- commands -----------------------------------------------------------------------------------


def json_of(capsys: pytest.CaptureFixture[str], *words: str | Path, codes: tuple[int, ...] = (0,)) -> Any:
    """What `leadline WORDS --json` prints, read back, with the exit code where it may be one of several."""
    capsys.readouterr()
    code = say([*map(str, words), "--json"])
    out, err = capsys.readouterr()
    assert code in codes, err
    return {"exit code": code, **json.loads(out)} if len(codes) > 1 else json.loads(out)


# --- frozen runs --------------------------------------------------------------------------------


def thaw(name: str, folder: Path) -> Path:
    """A copy of a frozen run as `leadline run` left it."""
    folder.mkdir(parents=True)
    shutil.copy(FROZEN / name / "manifest.json", folder)
    (folder / "records.jsonl").write_bytes(gzip.decompress((FROZEN / name / "records.jsonl.gz").read_bytes()))
    return folder


# --- texts --------------------------------------------------------------------------------------


def write_haystack(path: Path) -> Path:
    """Made-up sentences in paragraphs. The built-in prose and code come with Python and change with its version."""
    draw = random.Random("golden haystack")
    syllables = ("ba", "do", "ki", "lu", "me", "no", "pa", "ri", "so", "tu", "va", "we", "né", "grün", "ist", "th")
    words = sorted({"".join(draw.choices(syllables, k=draw.randrange(1, 5))) for _ in range(500)})
    paragraphs = [" ".join(_sentence(draw, words) for _ in range(draw.randrange(2, 7))) for _ in range(420)]
    path.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
    return path


def _sentence(draw: random.Random, words: Sequence[str]) -> str:
    said = draw.choices(words, k=draw.randrange(4, 15))
    if draw.random() < 0.3:
        said[2] += ","
    if draw.random() < 0.1:
        said[1] = f"“{said[1]}”"
    if draw.random() < 0.1:
        said[3] = f"{draw.randrange(10, 99)}%"
    text = " ".join(said)
    return text[0].upper() + text[1:] + draw.choice((".", ".", ".", "!", "?"))
