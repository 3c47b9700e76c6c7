"""Documents are exactly as long as asked, in every kind of tokenizer, or there is a LengthError."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadline.core.contracts import Tokenizer
from leadline.core.drafts import Draft, DraftQuestion, Fact, PieceBank
from leadline.core.errors import LengthError, SourceError, TokenizerError
from leadline.core.seeds import digest
from leadline.core.types import Cell, Document, Frame
from leadline.tasks.niah import Needle
from leadline.text.chat import ChatTemplate, completion_frame
from leadline.text.fillers import TextFiller
from leadline.text.fitting import Fitter
from leadline.text.fitting import fitter as fitting
from leadline.text.fitting.bank import CountedBank, count_bank
from leadline.text.fitting.joints import ContextTokenizer
from leadline.text.tokenizers import ByteTokenizer, WhitespaceTokenizer
from support.fitting import fit
from support.toy_tokenizers import FAMILIES, SMALL_HAYSTACKS, SMALL_PROSE, toy_tokenizer

PROSE = Needle(haystack=SMALL_PROSE)
CHAT = ChatTemplate(
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
).frame()


def tokenizer(name: str) -> Tokenizer:
    if name == "bytes":
        return ByteTokenizer()
    return WhitespaceTokenizer() if name == "whitespace" else toy_tokenizer(name)


def assert_exact(document: Document, tokens: Tokenizer) -> None:
    for probe in document.probes:
        ids = document.prompt_ids(probe)
        assert len(ids) == probe.prompt_tokens == probe.cell.length - probe.question.allowance
        assert np.array_equal(tokens.encode(document.prompt_text(probe)), ids)


# --- tokens when they are needed ---


def test_tokens_are_put_together_when_they_are_read_and_go_with_the_document_to_another_process() -> None:
    fitter = Fitter(ByteTokenizer(), CHAT)
    for sample in range(3):  # the first two are verified whole
        last = PROSE.document([Cell("niah", 1500, 0.5, sample)], seed=2, fitter=fitter)
    assert callable(last.tokens)
    sent = pickle.dumps(last)
    assert len(sent) < 10 * 1500  # the text and four bytes a token, without the haystack
    arrived = pickle.loads(sent)
    assert np.array_equal(arrived.ids, ByteTokenizer().encode(last.text))
    assert arrived.facts == last.facts
    assert not callable(last.tokens)


# --- by hand ---


def hand_draft(depth: float) -> Draft:
    pieces = [f" a{i} b{i} c{i} d{i}." for i in range(20)]
    bank = PieceBank("hand", digest(pieces), pieces)
    question = DraftQuestion(
        "\n\nwhat?", "", ("seven",), 2, ("match.all",), facts=("needle",), cell=Cell("hand", 35, depth, 0)
    )
    fact = Fact("needle", "the one needle is of seven words.", depth, 35)
    return Draft("hand", "hand", "", TextFiller(bank, 0, False), (fact,), (question,))


@pytest.mark.parametrize(("depth", "first"), [(0.0, 1), (0.5, 13), (1.0, 26)])
def test_a_needle_of_7_tokens_in_a_document_of_32_is_where_a_hand_count_says(depth: float, first: int) -> None:
    # Filler sentences of 4 words; 35 = 32 of document + 1 of question + 2 for the answer and its end.
    document = fit(hand_draft(depth), WhitespaceTokenizer(), completion_frame())
    [fact], [probe] = document.facts, document.probes
    assert probe.body_tokens == 32
    assert (fact.start + 1, fact.end) == (first, first + 6)
    words = document.text.split()
    assert words[first - 1 : first + 6] == "the one needle is of seven words.".split()
    assert fact.depth == pytest.approx((first - 1) / 25)
    assert_exact(document, WhitespaceTokenizer())


# --- by property ---

cells = st.tuples(
    st.sampled_from([*FAMILIES, "bytes", "whitespace"]),
    st.sampled_from(["noise", "needles", *SMALL_HAYSTACKS]),
    st.integers(300, 6000),
    st.floats(0, 1),
    st.integers(0, 50),
    st.booleans(),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cells, st.integers(1, 5), st.sampled_from(["words", "numbers", "uuids"]))
def test_any_needle_draft_is_exactly_as_long_as_asked_or_a_length_error(
    cell: tuple[str, str, int, float, int, bool], keys: int, kind: str
) -> None:
    name, haystack, length, depth, sample, chat = cell
    task = Needle.model_validate({"haystack": haystack, "keys": keys, "value_kind": kind, "answer_tokens": 32})
    draft = task.draft([Cell("niah", length, round(depth, 6), sample)], seed=7)
    tokens = tokenizer(name)
    refused: LengthError | None = None
    try:
        document = fit(draft, tokens, CHAT if chat else completion_frame())
    except LengthError as error:
        refused = error
    if refused is not None:
        assert length < 1500
        assert refused.shortest is None or refused.shortest > length
        return
    assert_exact(document, tokens)
    [fact] = document.planted(document.probes[0])
    assert fact.text in document.text


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", [*FAMILIES, "bytes"])
@pytest.mark.parametrize("reading", ["shared", "nested"])
def test_every_probe_of_a_shared_or_nested_document_is_exact(name: str, reading: str) -> None:
    lengths = [4096] if reading == "shared" else [2048, 4096, 8192]
    if name == "bytes":
        lengths = [4 * length for length in lengths]
    asked = [Cell("niah", length, depth / 4, 0) for length in lengths for depth in range(5)]
    tokens = tokenizer(name)
    document = fit(Needle(haystack=SMALL_PROSE, answer_tokens=24).draft(asked, seed=3), tokens, CHAT)
    assert [p.cell for p in document.probes] == asked
    assert_exact(document, tokens)
    for probe in document.probes:
        [fact] = document.planted(probe)
        assert fact.end <= probe.body_tokens
        # In nested bytes the facts and distractors of all lengths stand before the first of the shortest.
        assert abs(fact.depth - fact.depth_asked) < (0.15 if (name, reading) == ("bytes", "nested") else 0.1)
        assert probe.question.targets[0] in document.text[: probe.cut_characters]


@pytest.mark.parametrize("name", [*FAMILIES, "bytes"])
def test_facts_of_every_length_are_at_their_depths_in_a_nested_document_over_generated_text(name: str) -> None:
    """Attempts at a stretch skip sentences of many pieces; the last stretch had none left, and its facts began it."""
    lengths = [4096, 8192, 16_384] if name == "bytes" else [1024, 2048, 4096]
    asked = [Cell("niah", length, depth / 2, 0) for length in lengths for depth in range(3)]
    document = fit(Needle(haystack="prose", answer_tokens=24).draft(asked, seed=1), tokenizer(name), CHAT)
    longest = [document.planted(probe)[0] for probe in document.probes if probe.cell.length == lengths[-1]]
    assert [fact.depth for fact in longest] == pytest.approx([0.0, 0.5, 1.0], abs=0.08)


def test_a_prefix_cut_shares_its_tokens_with_the_document() -> None:
    asked = [Cell("niah", length, 0.5, 0) for length in (1024, 2048)]
    document = fit(Needle(haystack=SMALL_PROSE, answer_tokens=24).draft(asked, seed=3), toy_tokenizer("gpt2"), CHAT)
    for probe in document.probes:
        assert probe.cut > 0.8 * probe.prompt_tokens  # the document is read once, not again with every question


# --- what cannot be ---


def test_a_length_that_cannot_hold_the_question_says_the_shortest() -> None:
    draft = PROSE.draft([Cell("niah", 80, 0.5, 0)], seed=0)
    with pytest.raises(LengthError) as caught:
        fit(draft, WhitespaceTokenizer(), CHAT)
    shortest = caught.value.shortest
    assert shortest is not None
    assert shortest > 80
    document = fit(PROSE.draft([Cell("niah", shortest + 10, 0.5, 0)], seed=0), WhitespaceTokenizer(), CHAT)
    assert_exact(document, WhitespaceTokenizer())


def test_a_haystack_that_is_too_short_says_how_much_is_missing() -> None:
    pieces = [f" Sentence number {i} is here." for i in range(50)]
    bank = PieceBank("short", digest(pieces), pieces)
    question = DraftQuestion("\n\nwhat?", "", ("x",), 1, ("match.all",), cell=Cell("hand", 900, 0.5, 0))
    short = Draft("short", "short", "", TextFiller(bank, 3, False), (Fact("f", "A fact.", 0.5, 900),), (question,))
    with pytest.raises(SourceError, match=r"has 250 tokens .* are missing"):
        fit(short, WhitespaceTokenizer(), completion_frame())
    repeated = Draft("r", "r", "", TextFiller(bank, 3, True), short.facts, short.questions)
    assert_exact(fit(repeated, WhitespaceTokenizer(), completion_frame()), WhitespaceTokenizer())


class Inconsistent(WhitespaceTokenizer):
    """Gives a long text other tokens than its parts."""

    fingerprint = "inconsistent"

    def encode(self, text: str) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        ids = super().encode(text)
        return ids[: len(ids) // 2] if len(ids) > 300 else ids


def test_a_tokenizer_whose_whole_has_other_tokens_than_its_parts_is_refused() -> None:
    draft = Needle(haystack="noise").draft([Cell("niah", 2000, 0.5, 0)], seed=0)
    with pytest.raises(TokenizerError, match="lengths cannot be promised"):
        fit(draft, Inconsistent(), completion_frame())


class Empty(WhitespaceTokenizer):
    """Gives no tokens, as a tokenizer file with an empty vocabulary does."""

    fingerprint = "empty"

    def encode(self, text: str) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        return np.empty(0, np.int32)


@pytest.mark.parametrize("haystack", ["noise", "prose", "needles"])
def test_a_tokenizer_that_gives_no_tokens_is_refused(haystack: str) -> None:
    draft = Needle(haystack=haystack).draft([Cell("niah", 2000, 0.5, 0)], seed=0)
    with pytest.raises(SourceError, match="no tokens"):
        fit(draft, Empty(), completion_frame())


# --- the same in any order and process ---


def test_the_same_coordinates_give_the_same_document_in_any_order() -> None:
    def prompt(depth: float, sample: int) -> str:
        document = fit(PROSE.draft([Cell("niah", 2048, depth, sample)], seed=5), toy_tokenizer("gpt2"), CHAT)
        return document.prompt_text(document.probes[0])

    forwards = [prompt(d, s) for d in (0.0, 0.5, 1.0) for s in range(3)]
    backwards = [prompt(d, s) for d in (1.0, 0.5, 0.0) for s in (2, 1, 0)]
    assert forwards == backwards[::-1]
    assert len(set(forwards)) == 9


def test_tokens_that_the_server_adds_are_counted() -> None:
    frame = Frame(before="", after="", form="chat", prefill=False, fingerprint="x", extra_tokens=17)
    document = fit(PROSE.draft([Cell("niah", 1024, 0.5, 0)], seed=0), toy_tokenizer("gpt2"), frame)
    [probe] = document.probes
    assert len(document.prompt_ids(probe)) + 17 == probe.prompt_tokens == 1024 - probe.question.allowance


def test_a_fitter_counts_a_haystack_once_for_all_its_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []

    def counting(bank: PieceBank, context: ContextTokenizer) -> CountedBank:
        counted.append(bank.name)
        return count_bank(bank, context)

    monkeypatch.setattr(fitting, "count_bank", counting)
    fitter = Fitter(toy_tokenizer("gpt2"), CHAT)
    for sample in range(3):
        fitter.fit(PROSE.draft([Cell("niah", 1024, 0.5, sample)], seed=0))
    assert len(counted) == 1
    Fitter(toy_tokenizer("gpt2"), CHAT).fit(PROSE.draft([Cell("niah", 1024, 0.5, 0)], seed=0))
    assert len(counted) == 2
