"""Generated haystacks: do they read as text, and does no document repeat another?"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence

import numpy as np
import pytest

from leadline.core import registry
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell
from leadline.tasks.niah import WORDINGS
from leadline.text.chat import completion_frame
from leadline.text.corpora import open_corpus
from leadline.text.fitting import Fitter
from leadline.text.generated import GeneratedText
from leadline.text.sources import open_source
from support.toy_tokenizers import toy_tokenizer

NAMES = ("prose", "legal", "medical", "reports", "chat", "code", "agent", "german", "french", "spanish")
CHARACTERS_PER_TOKEN = 4.3
OVERLAP = {"prose": 0.03, "legal": 0.16, "medical": 0.1, "chat": 0.08, "code": 0.08, "agent": 0.03}  # fmt: skip
OVERLAP |= {"reports": 0.08, "german": 0.05, "french": 0.09, "spanish": 0.09}
"""Most of the 8-grams that two samples of 32k tokens may share. Contracts and code are formulaic."""


def text(name: str, seed: int, tokens: int) -> str:
    return GeneratedText(name).text(seed, int(tokens * CHARACTERS_PER_TOKEN))


def shared(first: str, second: str) -> float:
    """The share of the distinct 8-grams of words that two texts have in common."""

    def grams(words: Sequence[str]) -> set[tuple[str, ...]]:
        return {tuple(words[i : i + 8]) for i in range(len(words) - 7)}

    one, other = grams(first.split()), grams(second.split())
    return len(one & other) / min(len(one), len(other))


@pytest.mark.parametrize("name", NAMES)
def test_two_samples_share_few_phrases(name: str) -> None:
    characters = int(32_768 * CHARACTERS_PER_TOKEN)
    first, second = (text(name, seed, 32_768)[:characters] for seed in (1, 2))
    assert shared(first, second) < OVERLAP[name]


def test_two_samples_of_prose_share_few_phrases_at_128k() -> None:
    characters = int(131_072 * CHARACTERS_PER_TOKEN)
    first, second = (text("prose", seed, 131_072)[:characters] for seed in (3, 4))
    assert shared(first, second) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prose", "agent", "german", "french", "spanish"])
def test_five_million_tokens_repeat_no_paragraph(name: str) -> None:
    characters = 21_900_000 if name in ("prose", "agent") else 13_500_000  # at most 2.65 a token in SmolLM2's
    paragraphs = GeneratedText(name).text(5, characters).rstrip("\n").split("\n\n")
    assert len(set(paragraphs)) == len(paragraphs)


def test_a_session_has_calls_in_json_and_no_failed_command() -> None:
    written = text("agent", 9, 60_000)
    calls = [line for line in written.splitlines() if line.startswith('{"tool"')]
    assert len(calls) > 400
    assert {json.loads(call)["tool"] for call in calls} >= {"shell", "search", "read_file", "http", "edit"}
    assert not re.search(r"[«»\x00]|\{\w+\}(?![,\]])|  [A-Z]|\bexit\b|\bstatus \d", written)


def test_the_logs_of_a_session_have_no_time_out_of_order() -> None:
    """A line has the time since the line before it, so that no order of lines contradicts the times."""
    written = text("agent", 9, 60_000)
    logged = [line for line in written.splitlines() if re.search(r"^\S+( \S+)? (INFO|DEBUG|WARN) ", line)]
    assert len(logged) > 200
    assert all(re.match(r"\+\d+ms (INFO|DEBUG|WARN) ", line) for line in logged)
    assert not re.search(r"\d{4}-\d{2}-\d{2}", written)


def test_calls_of_a_session_return_what_they_asked_for() -> None:
    paragraphs = text("agent", 9, 60_000).split("\n\n")
    calls = [(json.loads(head), rest) for head, *rest in (p.split("\n") for p in paragraphs) if head[:7] == '{"tool"']
    counted = 0
    for call, rest in calls:
        asked = call["arguments"]
        command = asked.get("command", "")
        limit = asked.get("limit") or asked.get("lines") or asked.get("first")
        if found := re.search(r" -n (\d+) ", command):
            limit = int(found[1])
        if limit:
            counted += 1
            assert len(rest) == limit + (call["tool"] == "query")
        if call["tool"] == "search":
            assert all(asked["pattern"] in line for line in rest[:3])
        if call["tool"] == "http":
            assert asked["url"].endswith(f"/{next(iter(json.loads(chr(10).join(rest)).values()))}")
        if " report " in command:
            assert sum(int(n) for n in re.findall(r"(\d+)%", "".join(rest))) == 100
        if command.startswith("pytest"):
            runs = re.findall(r" ([.s]+) ", "\n".join(rest))
            passed, skipped = rest[-1].split(" passed")[0], re.search(r"(\d+) skipped", rest[-1])
            assert int(passed) == "".join(runs).count(".")
            assert (int(skipped[1]) if skipped else 0) == "".join(runs).count("s")
    assert counted > 100
    for diff in (p for p in paragraphs if p.startswith("--- ")):
        old, new, hunk, *lines = diff.split("\n")
        assert old[6:] == new[6:]
        before, after = re.search(r"-\d+,(\d+) \+\d+,(\d+) ", hunk).groups()  # type: ignore[union-attr]
        assert [sum(line[0] in signs for line in lines) for signs in (" -", " +")] == [int(before), int(after)]


@pytest.mark.parametrize(
    ("name", "slip"),
    [
        ("medical", r"\b[Aa]n urine|\b(lines|spells|tests|studies|palpitations)\b[^.,;]* (is|was|returns|has)\b"
                    r"|\bs?he faint\b|\bto work, and be\b|drain, in the box|\btrials is\b"),
        ("german", r"sieht nach (eine?|\w+ (Stunden|Meilen|Kehren))\b|rührt es an|\bweil \w+ \w+ (hört|merkt) am\b"
                   r"|bleibt was\b|erzählt dazu \w+( \w+)? Antwort|, (zahlt pünktlich|hört alles)\."),
        ("spanish", r"\blos (sábado|domingo)\b"),
        ("agent", r"\ba [aeio]|\ban [^aeiou]|\btells that\b|explain why (does|would)|instead of the"
                  r"|the (updated|created)\b|the (quotes|orders|metrics|reports|alerts) \w+s\b|\w[sy]s = "),
    ],
)  # fmt: skip
def test_slips_that_readers_found_do_not_come_back(name: str, slip: str) -> None:
    """Number, case, gender and word order, as found by reading some 150 sentences of each text."""
    written = text(name, 6, 200_000)
    assert [written[max(at.start() - 80, 0) : at.end() + 40] for at in re.finditer(slip, written)][:3] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_text_depends_on_its_seed_alone(name: str) -> None:
    source, again = GeneratedText(name), GeneratedText(name)
    assert source.text(7, 5000) == again.text(7, 5000) != source.text(8, 5000)
    filler, other = source.filler(seed=7), again.filler(seed=7)
    filler.arrange(10)
    assert np.array_equal(filler.arrange(4000), other.arrange(4000))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_looks_like_a_needle(name: str) -> None:
    written = text(name, 9, 60_000)
    assert not re.search(r"\d{5}|[0-9a-f]{8}-[0-9a-f]{4}", written)
    for phrase in ("kept for", "in the register", "stands beside", "is to be given", "was assigned", "pass key"):
        assert phrase not in written.lower()
    assert all(any(phrase in wording.lower() for wording in WORDINGS) for phrase in ("kept for", "was assigned"))


@pytest.mark.parametrize("name", ["prose", "legal", "medical", "reports", "chat"])
def test_the_grammar_is_english(name: str) -> None:
    written = text(name, 11, 60_000)
    assert not re.search(r"[{}\[\]|«»_]|  | [,.;]|,,", written)
    assert not re.search(r"\b[Aa] (?!one|eu)(?:[aeio]\w|8\b|11\b|18\b)", written)
    assert not re.search(r"\b[Aa]n (?:[bcdfgjklmnpqrstvwxyz])", written)
    assert not re.search(r"\b(the|a|an|of|in|and|was|is) \1\b", written)
    for paragraph in written.split("\n\n"):
        if paragraph.strip():
            assert paragraph.strip()[-1] in ".!?\"'", paragraph[-80:]
            assert not re.search(r"(?<!\.)[.!?] [a-z]", paragraph) or name == "chat", paragraph


def test_generated_code_parses() -> None:
    modules = re.split(r'^(?="""(?!Most|Least|Share|Part))', text("code", 13, 40_000), flags=re.MULTILINE)
    ast.parse(text("code", 13, 40_000))
    assert len(modules) > 3


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("tokenizer", ["gpt2", "llama3"])
@pytest.mark.parametrize("name", NAMES)
def test_documents_have_the_asked_length_to_the_token(name: str, tokenizer: str) -> None:
    task = registry.task(TaskSpec(name="niah", options={"haystack": name}))
    tokens = toy_tokenizer(tokenizer)
    fitter = Fitter(tokens, completion_frame())
    for length in (1024, 4096):
        made = task.document([Cell("niah", length, 0.5, 1)], seed=0, fitter=fitter)
        [probe] = made.probes
        whole = tokens.encode(made.prompt_text(probe))
        assert len(whole) == length - probe.question.allowance
        assert np.array_equal(whole, made.prompt_ids(probe))


def test_generated_documents_for_log_probabilities_do_not_end() -> None:
    corpus = open_corpus("medical")
    first, later = (corpus.text(number, tokens=500, seed=1) for number in (0, 5000))
    assert first is not None
    assert later is not None
    assert first != later
    assert min(len(first), len(later)) >= 3000


def test_facts_can_be_kept_between_paragraphs() -> None:
    bank = open_source("prose", unit="paragraph").filler(seed=0).bank
    assert bank.ends_sentence is not None
    closing = [piece for piece, closes in zip(bank.pieces, bank.ends_sentence, strict=True) if closes]
    assert closing
    assert all(piece.endswith("\n\n") for piece in closing)


@pytest.mark.parametrize("name", ["prose", "code"])
def test_texts_of_several_seeds_written_together_are_those_written_one_by_one(name: str) -> None:
    together = [GeneratedText(name).filler(seed=seed) for seed in range(5)]
    together[2].arrange(40)  # writes the first text of all that have none
    alone = [GeneratedText(name).filler(seed=seed) for seed in range(5)]
    for one, other in zip(together, alone, strict=True):
        assert one.arrange(1500).tolist() == other.arrange(1500).tolist()


def test_a_long_text_of_one_seed_is_the_same_beside_that_of_another_seed() -> None:
    grammar = GeneratedText("prose").filler(seed=0)._grammar  # type: ignore[attr-defined]
    [alone], [first, _] = grammar.write([7], 0, 90), grammar.write([7, 8], 0, 90)
    assert alone.tolist() == first.tolist()
    parts = [grammar.write([7], start, 30)[0] for start in (0, 30, 60)]
    assert alone.tolist() == np.concatenate(parts).tolist()
