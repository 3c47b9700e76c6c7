"""Word counts: the paper's frequencies, strict at every cut, and words that cannot be taken for one another."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import zeta as scipy_zeta

from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.contracts import Tokenizer
from leadline.core.errors import LengthError, UsageError
from leadline.core.records import Receipt
from leadline.core.seeds import Split
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Document, Probe
from leadline.models.sim.model import REFUSALS
from leadline.scorers.failure import DEMONSTRATION, STOP_WORDS, classify
from leadline.tasks.counting import CommonWords, CountingTask, FrequentWords, most_frequent, zeta
from leadline.tasks.placement import pick_sizes
from leadline.tasks.words import demonstration_words, english_words, list_words
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import ByteTokenizer, WhitespaceTokenizer
from support.fitting import fit
from support.toy_tokenizers import toy_tokenizer

CWE = CommonWords(placement="anywhere")
FWE = FrequentWords(placement="anywhere")
ENTRY = re.compile(r"(\d+)\. ([a-z]+)")


def laid_out(task: CountingTask, cells: Sequence[Cell], tokens: Tokenizer | None = None) -> Document:
    return fit(task.draft(cells, seed=3), tokens or WhitespaceTokenizer(), completion_frame())


def tokenizer(name: str) -> Tokenizer:
    if name == "bytes":
        return ByteTokenizer()
    return WhitespaceTokenizer() if name == "whitespace" else toy_tokenizer(name)


def one(task: CountingTask, length: int, sample: int = 0, depth: float | None = None) -> Document:
    return laid_out(task, [Cell("x", length, depth, sample)])


def body(document: Document, probe: Probe | None = None) -> str:
    cut = (probe or document.probes[0]).cut_characters
    return document.text[document.body_start_characters : cut]


def entries(text: str) -> list[tuple[int, str]]:
    return [(int(number), word) for number, word in ENTRY.findall(text)]


def counted(text: str) -> list[tuple[str, int]]:
    return Counter(word for word in text.split() if word.isalpha()).most_common()


# --- common words ---


@pytest.mark.parametrize(("length", "often", "seldom"), [(3000, 6, 1), (4096, 30, 3), (9001, 30, 3)])
def test_common_words_stand_as_often_as_in_the_paper_and_others_as_seldom(length: int, often: int, seldom: int) -> None:
    task = registry.task(TaskSpec(name="cwe", options={"placement": "anywhere"}))
    assert isinstance(task, CommonWords)
    document = one(task, length)
    ranked = counted(body(document))
    assert [times for _, times in ranked[:10]] == [often] * 10
    assert {times for _, times in ranked[10:]} <= set(range(1, seldom + 1))
    fewer = [word for word, times in ranked[10:] if times < seldom]
    assert len(fewer) <= 24  # the last words of a list, chosen so that the tokens add up
    assert sorted(document.probes[0].question.targets) == sorted(word for word, _ in ranked[:10])
    assert document.probes[0].question.allowance == 120
    assert document.probes[0].question.scorers[:2] == ("match.all", "ruler.v1")


def test_the_list_is_numbered_from_one_without_a_gap() -> None:
    for tokens in (WhitespaceTokenizer(), ByteTokenizer(), toy_tokenizer("gpt2"), toy_tokenizer("digits")):
        document = laid_out(CWE, [Cell("x", 16_000, None, 0)], tokens)
        text = body(document)
        numbers = [number for number, _ in entries(text)]
        assert numbers == list(range(1, len(numbers) + 1))
        rest = ENTRY.sub("", text).replace("...", "").strip()
        assert rest == ""  # nothing but entries, and dots where no word would fit


def test_dots_end_a_list_only_where_no_choice_of_words_adds_up() -> None:
    tokens = toy_tokenizer("gpt2")
    ended = [body(laid_out(CWE, [Cell("x", length, None, 0)], tokens)) for length in range(6000, 6012)]
    assert not any("..." in text for text in ended)
    odd = [body(one(CWE, length)) for length in (5000, 5001)]  # there an entry is two tokens and a word is one
    assert sum("..." in text for text in odd) == 1


def test_the_demonstration_is_solved_right_with_words_that_no_list_has() -> None:
    for length, often in ((3000, 3), (5000, 10)):
        document = one(CWE, length)
        shown = document.text[: document.body_start_characters].partition("\n\n")[2].partition("\n\n")[0]
        ranked = Counter(word for _, word in entries(shown)).most_common()
        assert sorted(w for w, n in ranked if n == often) == sorted(document.probes[0].question.demonstration)
        assert len(entries(shown)) == {3: 40, 10: 190}[often]
        assert {w for w, _ in ranked}.isdisjoint(w for _, w in entries(body(document)))


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_common_words_concentrate_around_the_depth(depth: float) -> None:
    document = one(CommonWords(spread=0.3), 30_000, depth=depth)
    listed = entries(body(document))
    common = set(document.probes[0].question.targets)
    places = [number / len(listed) for number, word in listed if word in common]
    low = min(max(depth - 0.15, 0.0), 0.7)
    assert all(low - 0.01 <= place <= low + 0.31 for place in places)
    assert max(places) - min(places) > 0.25


def test_a_band_too_narrow_for_the_common_words_widens() -> None:
    document = one(CommonWords(spread=0.0), 4096, depth=0.0)
    listed = entries(body(document))
    common, words = set(document.probes[0].question.targets), [word for _, word in listed]
    first = next(n for n, word in enumerate(words) if word in common)
    assert len(common) <= first <= 2 * len(common)  # the others that stand before them
    assert set(words[first : first + 300]) == common


def test_a_list_of_coined_words_has_no_other() -> None:
    document = one(CommonWords(vocabulary="coined", placement="anywhere"), 6000)
    assert {word for _, word in entries(body(document))}.isdisjoint(english_words())


def test_english_words_come_first_and_common_words_are_of_the_same_kinds_as_the_others() -> None:
    short, long = one(CWE, 8000), one(CWE, 120_000)
    english = set(english_words())
    assert {word for _, word in entries(body(short))} <= english
    kinds = Counter(word in english for word in {word for _, word in entries(body(long))})
    assert kinds[False] > kinds[True] > 0
    common = [word in english for sample in range(6) for word in one(CWE, 120_000, sample).probes[0].question.targets]
    assert 0 < sum(common) < len(common) / 2


# --- frequent words ---


@pytest.mark.parametrize("length", [512, 4096, 20_000])
def test_frequencies_follow_the_zeta_law_and_the_first_rank_is_noise(length: int) -> None:
    task = registry.task(TaskSpec(name="fwe", options={"placement": "anywhere"}))
    assert isinstance(task, FrequentWords)
    document = one(task, length)
    words = body(document).split()
    ranked = [times for _, times in counted(body(document)) if times > 1]
    # Rank 2 stands floor(x / 4) times; that leaves four values of x, and for each rank k floor(x / k^2).
    for rank, times in enumerate(ranked, start=2):
        assert 4 * ranked[0] // rank**2 <= times <= (4 * ranked[0] + 3) // rank**2
    assert 4 * ranked[0] <= words.count("...") <= 4 * ranked[0] + 40  # a few more make up for tokens
    assert words.count("...") / len(words) == pytest.approx(6 / np.pi**2, abs=0.06)
    assert all(re.fullmatch("[a-z]{6}", word) for word in words if word != "...")
    assert document.probes[0].question.targets == most_frequent(body(document), 3)
    assert document.probes[0].question.allowance == 50


def test_the_zeta_function_is_scipy_s() -> None:
    for alpha in (1.05, 1.5, 2.0, 2.5, 3.5, 8.0):
        assert zeta(alpha) == pytest.approx(float(scipy_zeta(alpha)), rel=1e-10)


@pytest.mark.parametrize("depth", [0.0, 1.0])
def test_frequent_words_concentrate_around_the_depth(depth: float) -> None:
    document = one(FrequentWords(spread=0.4), 8000, depth=depth)
    words, asked = body(document).split(), set(document.probes[0].question.targets)
    places = [number / len(words) for number, word in enumerate(words) if word in asked]
    assert max(places) < 0.42 if depth == 0.0 else min(places) > 0.58


def test_noise_is_not_a_word_that_could_be_counted() -> None:
    for noise in ("noise", "", ". ."):
        with pytest.raises(UsageError, match="noise"):
            registry.task(TaskSpec(name="fwe", options={"noise": noise}))
    assert "--" in body(one(FrequentWords(noise="--", placement="anywhere"), 1000)).split()


def test_a_word_that_is_asked_for_must_be_more_frequent_than_the_others() -> None:
    with pytest.raises(UsageError, match="freq_cw"):
        registry.task(TaskSpec(name="cwe", options={"freq_cw": 3}))


# --- strict, at every cut, whatever the options ---


def assert_strict(document: Document) -> None:
    for probe in document.probes:
        ranked = counted(body(document, probe))
        size = len(probe.question.targets)
        assert {word for word, _ in ranked[:size]} == set(probe.question.targets)
        assert len(ranked) == size or ranked[size - 1][1] > ranked[size][1]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["whitespace", "bytes", "gpt2", "llama2"]),
    st.floats(1.1, 4.0),
    st.integers(1, 8),
    st.integers(300, 9000),
    st.integers(0, 99),
)
def test_the_most_frequent_words_never_have_an_equal(
    name: str, alpha: float, top: int, length: int, sample: int
) -> None:
    task = FrequentWords(alpha=round(alpha, 2), top=top, placement="anywhere")
    refused: LengthError | None = None
    try:
        document = laid_out(task, [Cell("x", length, None, sample)], tokenizer(name))
    except LengthError as error:
        refused = error
    if refused is None:
        assert_strict(document)
    else:
        assert refused.shortest is not None
        assert refused.shortest > length


@pytest.mark.quick_cases(name=("gpt2",))
@pytest.mark.parametrize("task", [CWE, FWE, CommonWords(freq_cw=8, freq_ucw=2, num_cw=5, placement="anywhere")])
@pytest.mark.parametrize("name", ["whitespace", "gpt2", "unigram"])
@pytest.mark.parametrize(
    "lengths", [(4096, 8192, 16_384), (5000, 5030, 5060, 16_000), tuple(range(6000, 16_000, 1000))]
)
def test_the_truth_is_recounted_and_strict_at_every_cut(
    task: CountingTask, name: str, lengths: tuple[int, ...]
) -> None:
    tokens = tokenizer(name)
    document = laid_out(task, [Cell("x", length, None, 0) for length in lengths], tokens)
    assert_strict(document)
    for probe in document.probes:
        ids = document.prompt_ids(probe)
        assert len(ids) == probe.cell.length - probe.question.allowance
        assert np.array_equal(ids, tokens.encode(document.prompt_text(probe)))
    shares = [
        sum(word in set(longest.question.targets) for word in body(document, probe).split())
        for longest in document.probes[-1:]
        for probe in document.probes
    ]
    assert shares == sorted(shares)
    if lengths[-1] > 3 * lengths[0]:
        assert shares[-1] > 2 * shares[0]  # the longest text holds evidence of its own


def test_a_tie_is_an_error_and_never_an_answer() -> None:
    assert most_frequent("1. b 2. a 3. a 4. b 5. c", 2) == ("b", "a")
    with pytest.raises(ValueError, match="3 words occur at least 1 times, not 2"):
        most_frequent("1. a 2. b 3. c", 2)


def test_one_list_at_several_depths_is_refused_with_a_way_out() -> None:
    for task in (CommonWords(), FrequentWords()):
        with pytest.raises(UsageError, match="several depths") as caught:
            task.draft([Cell("x", 4096, depth, 0) for depth in (0.0, 1.0)], seed=0)
        assert "placement=anywhere" in caught.value.fix


# --- the pool ---


@pytest.mark.parametrize("split", ["test", "train"])
def test_no_word_of_the_pool_stands_inside_another(split: Split) -> None:
    words = list_words(20_000, "english", split)
    whole = set(words)
    assert len(whole) == len(words) >= 20_000
    inside = [
        (word[a:b], word)
        for word in words
        for a, b in itertools.combinations(range(len(word) + 1), 2)
        if b - a < len(word) and word[a:b] in whole
    ]
    assert inside == []


def test_training_and_testing_lists_have_no_word_in_common() -> None:
    sides = [{*list_words(5000, "english", s), *demonstration_words(s)} for s in ("test", "train")]
    assert sides[0].isdisjoint(sides[1])


def test_no_english_word_of_the_pool_is_said_by_our_prompts_or_by_a_refusal() -> None:
    document = one(CWE, 4096)
    probe = document.probes[0]
    prompt = re.sub(r"\d+\. [a-z]+", "", document.text[: document.body_start_characters]) + probe.user_suffix
    said = " ".join([prompt.lower(), *REFUSALS]).lower()
    for word in probe.question.demonstration:
        said = said.replace(word, "")
    assert [word for word in english_words() if word in said] == []


@pytest.mark.slow
def test_there_are_enough_words_for_a_million_tokens_of_any_tokenizer() -> None:
    # No entry is less than two tokens, and other words stand three times: the bank asks for as many words.
    words = list_words((1 << 20) // 2 // 3 + 512, "english", "test")
    assert len(set(words)) == len(words)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=60), st.integers(0, 12), st.integers(0, 40))
def test_picked_items_add_up(sizes: list[int], count: int, total: int) -> None:
    found = pick_sizes(np.array(sizes), count, total)
    if found is not None:
        assert len(set(found.tolist())) == len(found) == count
        assert sum(sizes[i] for i in found.tolist()) == total
    if found is None and count == 2:
        assert all(a + b != total for a, b in itertools.combinations(sizes, 2))


# --- what a wrong answer gives away ---


def test_stop_words_and_a_copied_demonstration_are_told_apart() -> None:
    def classed(probe: Probe, answer: str) -> tuple[str, str]:
        said = Completion(answer, finish="stop")
        scores = {name: registry.scorer(name).score(probe.question, said) for name in probe.question.scorers}
        return classify(probe.question, said, scores, Receipt(probe.prompt_tokens, probe.prompt_tokens))

    common, frequent = one(CWE, 4096).probes[0], one(FWE, 1024).probes[0]
    assert classed(common, ", ".join(common.question.demonstration)) == ("distractor", DEMONSTRATION)
    assert classed(frequent, "the, of, and") == ("wrong", STOP_WORDS)
    assert classed(frequent, ", ".join(frequent.question.targets)) == ("correct", "")
