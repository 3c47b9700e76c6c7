"""The text around a fact is whole at every depth: the piece that is cut to size is never next to a fact."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from leadline.core.types import Cell, Document
from leadline.tasks.niah import Needle
from leadline.text.chat import completion_frame
from leadline.text.sources import open_source
from support.fitting import fit
from support.toy_tokenizers import toy_tokenizer

DEPTHS = (0.0, 0.35, 0.75, 0.95, 1.0)
TOKENIZERS = ("gpt2", "llama3", "llama2", "unigram", "digits")
WORDS = "harbour winter ledger copper garden signal window barrel station candle letter orchard timber market".split()


def _prose() -> str:
    """Sentences that begin with `So` and end with a full stop, two to five in a paragraph."""
    draw = random.Random(4)
    sentences = [f"So {' '.join(draw.choices(WORDS, k=draw.randint(4, 22)))} stays." for _ in range(2500)]
    text = ""
    for sentence in sentences:
        text += sentence + draw.choice(("\n\n", " ", " ", " "))
    return text


def _code() -> str:
    """Functions and classes of one to thirty lines; every line ends with a semicolon or a colon."""
    draw = random.Random(5)
    lines = []
    for n in range(320):
        lines += [f"class Ledger{n}:", f"    name = '{draw.choice(WORDS)}';", ""] if n % 3 == 0 else []
        indent = "    " if n % 3 == 0 else ""
        lines.append(f"{indent}def {draw.choice(WORDS)}_{n}(left, right):")
        for k in range(draw.randint(1, 30)):
            lines.append(f"{indent}    {draw.choice(WORDS)} = {draw.choice(WORDS)}(left, {k * n});")
            lines += [""] if draw.random() < 0.1 else []
        lines += ["", ""]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def haystacks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("haystacks")
    for name, text in (("prose.txt", _prose()), ("code.py", _code())):
        (folder / name).write_text(text)
    return {"prose": str(folder / "prose.txt"), "code": str(folder / "code.py"), "noise": "noise"}


def broken_around(document: Document, kind: str, whole_lines: set[str]) -> list[str]:
    """What stands next to a fact and is not whole, as read from the text alone."""
    found = []
    body = document.text[document.body_start_characters :]
    facts = [f.text for f in document.facts]
    for fact in facts:
        before, after = body.split(fact)
        if kind == "prose":
            sentence = re.search(r"(?:^|[.\n]\s*)So [a-z ]+ stays\.\s+$", before)
            before_ok = not before or bool(sentence) or before.rstrip().endswith(tuple(facts))
            sentence = re.match(r"\s+So [a-z ]+ stays\.(?=\s|$)", after)
            after_ok = not after.strip() or bool(sentence) or after.lstrip().startswith(tuple(facts))
        else:
            last = before.rstrip().rpartition("\n")[2].strip()
            following = after.lstrip().partition("\n")
            before_ok = not before.strip() or (before.endswith("\n") and last in whole_lines | set(facts))
            after_ok = not after.strip() or (
                after.startswith("\n") and following[0].strip() in whole_lines | set(facts) and bool(following[1])
            )
        if not before_ok:
            found.append(f"{before[-60:]!r} before a fact")
        if not after_ok:
            found.append(f"{after[:60]!r} after a fact")
    return found


@pytest.mark.quick_cases(9, name=("gpt2", "unigram"))
@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("kind", ["prose", "noise", "code"])
@pytest.mark.parametrize("reading", ["fresh", "shared", "nested"])
def test_no_fact_is_next_to_a_cut_piece(name: str, kind: str, reading: str, haystacks: dict[str, str]) -> None:
    lengths = (700, 1009)
    cells = [Cell("niah", length, depth, sample) for length in lengths for depth in DEPTHS for sample in range(1)]
    groups = {
        "fresh": [[cell] for cell in cells],
        "shared": [[c for c in cells if (c.length, c.sample) == (n, s)] for n in lengths for s in range(1)],
        "nested": [[c for c in cells if c.sample == s] for s in range(1)],
    }[reading]
    if reading == "nested":  # 24 facts need more room
        groups = [[Cell("niah", 3 * c.length, c.depth, c.sample) for c in group] for group in groups]
    source = haystacks[kind]
    pieces = open_source(source).filler(seed=0).bank.pieces
    whole = {line.strip() for piece in pieces for line in piece.splitlines() if line.strip()}
    if kind == "code":
        whole = {line.strip() for line in Path(source).read_text().splitlines() if line.strip()}
    tokens = toy_tokenizer(name)
    task = Needle(haystack=source, answer_tokens=16, keys=1)
    broken = []
    for group in groups:
        document = fit(task.draft(group, seed=11), tokens, completion_frame())
        for probe in document.probes:
            ids = document.prompt_ids(probe)
            assert len(ids) == probe.prompt_tokens == probe.cell.length - 16
            assert tokens.encode(document.prompt_text(probe)).tolist() == ids.tolist()
        broken += [f"{document.id}: {text}" for text in broken_around(document, kind, whole)]
    assert not broken, f"{len(broken)} of {sum(map(len, groups))}: {broken[:4]}"


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("name", ["gpt2", "llama3", "unigram"])
@pytest.mark.parametrize("kind", ["prose", "legal", "noise", "code"])
def test_white_space_around_a_fact_is_that_between_the_sentences_of_its_text(
    name: str, kind: str, haystacks: dict[str, str]
) -> None:
    source = haystacks.get(kind, kind)
    breaks = {"prose": {" ", "\n\n"}, "legal": {" ", "\n\n"}, "noise": {"\n"}}.get(kind)
    task = Needle(haystack=source, answer_tokens=16, keys=1)
    for depth in (0.0, 0.5, 1.0):
        for sample in range(4):
            draft = task.draft([Cell("niah", 1400, depth, sample)], seed=5)
            document = fit(draft, toy_tokenizer(name), completion_frame())
            [fact] = document.facts
            before, after = document.text[document.body_start_characters :].split(fact.text)
            around = [before[len(before.rstrip()) :]] * bool(before) + [
                after[: len(after) - len(after.lstrip())]
            ] * bool(after)
            assert all(set(s.strip(" ")) == {"\n"} if breaks is None else s in breaks for s in around), (around, depth)
            assert fact.start == 0 if depth == 0 else before.rstrip()


@pytest.mark.parametrize("name", ["gpt2", "llama3"])
def test_facts_in_code_are_near_the_depth_asked_for(name: str, haystacks: dict[str, str]) -> None:
    tokens = toy_tokenizer(name)
    for length, most in ((1024, 0.12), (4096, 0.03)):
        cells = [Cell("niah", length, d / 10, sample) for d in range(11) for sample in range(2)]
        task = Needle(haystack=haystacks["code"], answer_tokens=16, keys=1)
        for cell in cells:
            [fact] = fit(task.draft([cell], seed=5), tokens, completion_frame()).facts
            assert abs(fact.depth - fact.depth_asked) < most, cell
