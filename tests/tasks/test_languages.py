"""Needles and pairs in German, French and Spanish: own texts, own haystacks, exact lengths."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from leadline.core.contracts import Tokenizer
from leadline.core.errors import UsageError
from leadline.core.registry import task as find_task
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Document
from leadline.scorers.trivial_readers import mean_scores, trivial_scores
from leadline.tasks.languages import LANGUAGES
from leadline.tasks.niah import Needle
from leadline.text.chat import completion_frame
from leadline.text.generated import GeneratedText
from leadline.text.tokenizers import ByteTokenizer, WhitespaceTokenizer
from support.fitting import fit
from support.toy_tokenizers import FAMILIES, toy_tokenizer

SPOKEN = {"de": ("Frage:", "und"), "fr": ("Question :", "et"), "es": ("Pregunta:", "y")}
ENGLISH = re.compile(r"\b(the|and|with|which|number|of)\b")


def document(name: str, language: str, *cells: Cell, tokens: Tokenizer | None = None, **options: Any) -> Document:
    task = find_task(TaskSpec(name=name, options={"language": language, **options}))
    return fit(task.write(cells, seed=2), tokens or WhitespaceTokenizer(), completion_frame())


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", ["niah", "kv"])
def test_prompts_are_in_the_language_and_as_long_as_asked(name: str, language: str) -> None:
    made: list[tuple[Tokenizer, int]] = [(toy_tokenizer(f), 3) for f in FAMILIES]
    for tokens, scale in [*made, (ByteTokenizer(), 6), (WhitespaceTokenizer(), 1)]:
        found = document(name, language, Cell(name, scale * 1203, 0.4, 1), tokens=tokens)
        [probe] = found.probes
        whole = tokens.encode(found.prompt_text(probe))
        assert len(whole) == scale * 1203 - probe.question.allowance
        assert np.array_equal(whole, found.prompt_ids(probe))
        asked, joining = SPOKEN[language]
        assert probe.question.text.startswith(asked)
        assert name == "kv" or f" {joining} " in found.text[found.body_start_characters :]
        assert not ENGLISH.search(found.prompt_text(probe))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_wording_is_whole_for_every_kind_of_value(language: str) -> None:
    texts = LANGUAGES[language]
    assert len(texts.needles) == 5
    assert len(texts.questions) == 3
    assert len(set(texts.nouns)) == len(texts.nouns) >= 120
    for kind in ("numbers", "uuids"):
        for wording in range(1, 6):
            found = document("niah", language, Cell("niah", 700, 0.5, wording), value_kind=kind, wording=wording)
            [probe] = found.probes
            [fact] = found.planted(probe)
            assert probe.question.targets[0] in fact.text
            assert not re.search(r"[{}]", found.prompt_text(probe))


@pytest.mark.parametrize("language", LANGUAGES)
def test_one_document_answers_all_depths_and_lengths(language: str) -> None:
    cells = [Cell("niah", length, depth, 0) for length in (2000, 4000) for depth in (0.1, 0.9)]
    found = document("niah", language, *cells)
    for probe in found.probes:
        assert found.text[: probe.cut_characters].count(probe.question.targets[0]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_readers_that_ignore_the_question_are_at_chance(language: str) -> None:
    found = mean_scores(trivial_scores(Needle.model_validate({"language": language}), "niah", samples=8))
    assert all(value <= 0.4 for value in found.values()), found


def test_the_question_before_the_document_ends_in_the_language() -> None:
    found = document("niah", "de", Cell("niah", 900, 0.5, 0), question_at="before")
    assert "Beantworte jetzt die Frage" in found.probes[0].user_suffix
    assert "Frage:" in found.text[: found.body_start_characters]


@pytest.mark.parametrize(
    "options", [{"queries": 2}, {"values": 2}, {"value_kind": "words"}, {"absent": 0.5}, {"haystack": "needles"}]
)
def test_forms_that_are_in_english_only_are_refused(options: dict[str, Any]) -> None:
    [(name, value), *_] = options.items()
    with pytest.raises(UsageError, match=f"{name}={value} is in English only: leave it out, or leave out language="):
        find_task(TaskSpec(name="niah", options={"language": "fr", **options}))


@pytest.mark.parametrize("name", ["german", "french", "spanish"])
def test_generated_prose_has_no_traces_of_its_grammar(name: str) -> None:
    written = GeneratedText(name).text(11, 250_000)
    assert not re.search(r"[{}\[\]|«»_]|  | [,.]|,,", written)
    assert not re.search(
        r"\b(\w+) \1\b(?!\w)", re.sub(r"(?i)\b(die die|der der|das das|sie sie)\b", "", written[:60_000])
    )
    for paragraph in written.split("\n\n"):
        assert not paragraph.strip() or paragraph.strip()[-1] in ".!?"
    elided = re.search(r"\b(?:de|que|le|la) [AEIOUÉÈaeiouéè]\w+", written) if name == "french" else None
    assert elided is None, elided
    assert not re.search(r"\b(?:de el|a el) (?!p)", written)
