"""Tokenizers, chat templates, haystacks and splitting."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.core import registry
from leadline.core.errors import SourceError, TokenizerError, UsageError
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Cluster
from leadline.text.chat import ChatTemplate, adds_bos, completion_frame
from leadline.text.fillers import Mixture
from leadline.text.fitting import Fitter
from leadline.text.fitting import bank as banks
from leadline.text.fitting.bank import count_bank
from leadline.text.fitting.joints import ContextTokenizer
from leadline.text.sources import (
    LONG_SENTENCE,
    TextSource,
    open_source,
    split_blocks,
    split_finely,
    split_paragraphs,
    split_sentences,
)
from leadline.text.tokenizers import FileTokenizer, WhitespaceTokenizer, open_tokenizer
from support.fitting import fit
from support.toy_tokenizers import FAMILIES, SMALL_CODE, SMALL_PROSE, toy_tokenizer

# --- tokenizers ---


def test_a_tokenizer_file_that_truncates_and_pads_does_neither_here(tmp_path: Path) -> None:
    made = toy_tokenizer("gpt2")
    assert isinstance(made, FileTokenizer)
    saved = json.loads(made.file.read_text())
    saved["truncation"] = {"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 0}
    saved["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
        "pad_token": "<|end|>",
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(saved))
    text = "A long text is a long text. " * 40
    assert np.array_equal(open_tokenizer(str(tmp_path)).encode(text), made.encode(text))
    assert len(open_tokenizer(str(tmp_path)).encode("A text.")) < 64


def test_a_tokenizer_that_is_not_there_says_what_may_be_given(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="no tokenizer at") as caught:
        open_tokenizer(str(tmp_path / "nothing"))
    assert "tokenizer=server" in caught.value.fix
    with pytest.raises(TokenizerError, match="no tokenizer at"):
        open_tokenizer("x" * 300)
    with pytest.raises(UsageError, match="no user 'nobody-of-this-name'"):
        open_tokenizer("~nobody-of-this-name/model")
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(TokenizerError, match="sentencepiece") as caught:
        open_tokenizer(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match="not a usable tokenizer"):
        open_tokenizer(str(tmp_path))


@pytest.mark.parametrize("name", [*FAMILIES, "bytes", "whitespace"])
def test_token_ends_agree_with_token_counts(name: str) -> None:
    tokenizer = toy_tokenizer(name) if name in FAMILIES else open_tokenizer(name)
    text = "Number 1234567 belongs to brisk-lantern, said he.\n\nAnd then? 42."
    ends = tokenizer.ends(text)
    assert ends is not None
    assert len(ends) == len(tokenizer.encode(text))
    assert list(ends) == sorted(ends)
    assert ends[-1] == len(text)


def test_fingerprints_tell_tokenizers_apart() -> None:
    names = [toy_tokenizer(f).fingerprint for f in FAMILIES] + ["bytes", "whitespace"]
    assert len(set(names)) == len(names)


def test_joints_within_words_are_trusted_only_where_words_are_cut_up_first() -> None:
    assert ContextTokenizer(toy_tokenizer("gpt2")).splits_characters("k", "-")
    assert not ContextTokenizer(toy_tokenizer("llama2")).splits_characters("k", "-")
    assert not ContextTokenizer(toy_tokenizer("unigram")).splits_characters("7", ".")
    assert not ContextTokenizer(open_tokenizer("whitespace")).splits_characters("k", "-")
    assert ContextTokenizer(open_tokenizer("bytes")).splits_characters("a", "b")


@pytest.mark.parametrize("family", FAMILIES)
def test_pieces_side_by_side_have_the_tokens_of_the_whole_text(family: str) -> None:
    context = ContextTokenizer(toy_tokenizer(family))
    counted = count_bank(open_source(SMALL_PROSE).filler(seed=0).bank, context)
    assert counted.clean.mean() > 0.95
    start = 100
    while not counted.clean[start : start + 20].all():
        start += 1
    text = "".join(counted.bank.pieces[start : start + 20])
    order = np.arange(start, start + 20)
    assert "".join(counted.texts(order)) == text
    assert np.array_equal(np.frombuffer(b"".join(counted.id_parts(order)), np.int32), context.encode_between(text))


def test_counting_a_bank_again_reads_it_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADLINE_CACHE", str(tmp_path))
    context, pieces = ContextTokenizer(toy_tokenizer("gpt2")), open_source(SMALL_PROSE).filler(seed=0).bank
    first = count_bank(pieces, context)
    monkeypatch.setattr(banks, "_count", None)  # would fail if it counted
    assert np.array_equal(count_bank(pieces, context).ids, first.ids)


# --- chat templates ---

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|start|>system\nYou are kind.<|end|>\n' }}{% endif %}"
    "{{ '<|start|>' + message['role'] + '\n' + message['content'] + '<|end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)


def test_a_frame_is_what_the_template_puts_around_the_user_s_words() -> None:
    frame = ChatTemplate(CHATML).frame()
    assert frame.before == "<|start|>system\nYou are kind.<|end|>\n<|start|>user\n"
    assert frame.after == "<|end|>\n<|start|>assistant\n"
    assert frame.system == "You are kind."
    assert frame.form == "chat"


def test_thinking_is_switched_by_the_template_and_changes_the_fingerprint() -> None:
    template = ChatTemplate(CHATML)
    off = template.frame(thinking=False)
    assert off.after.endswith("<think>\n\n</think>\n\n")
    assert len({template.frame(thinking=t).fingerprint for t in (None, True, False)}) == 3


def test_a_template_without_a_system_role_has_no_system_text() -> None:
    source = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + (
        "{{ bos_token }}[INST] {{ messages[0]['content'] | trim }} [/INST]"
    )
    frame = ChatTemplate(source, bos="<s>").frame()
    assert (frame.before, frame.after, frame.system) == ("<s>[INST] ", " [/INST]", "")


def test_templates_are_found_in_a_model_folder(tmp_path: Path) -> None:
    assert ChatTemplate.load(tmp_path) is None
    config = {"chat_template": CHATML, "bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    found = ChatTemplate.load(tmp_path)
    assert found is not None
    assert (found.source, found.bos, found.eos) == (CHATML, "<s>", "</s>")
    assert adds_bos(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("other {{ messages[0]['content'] }}")
    newer = ChatTemplate.load(tmp_path)
    assert newer is not None
    assert newer.frame().before == "other "


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("hostile", ["'x' * 10**7", "('x' * 1000000) * 3000", "[1] * 999999 * 999"])
def test_a_template_that_makes_something_huge_is_refused(hostile: str) -> None:
    with pytest.raises(TokenizerError, match=r"memory|characters"):
        ChatTemplate("{{ messages[0]['content'] }}{{ " + hostile + " }}").frame()


def test_a_template_that_fails_or_drops_the_user_is_an_error_of_ours() -> None:
    with pytest.raises(TokenizerError, match="does not render"):
        ChatTemplate("{{ raise_exception('never') }}").frame()
    with pytest.raises(TokenizerError, match="does not contain"):
        ChatTemplate("hello").frame()
    with pytest.raises(TokenizerError, match="does not render"):
        ChatTemplate("{{ ''.__class__.__mro__[1].__subclasses__() }}").frame()  # templates are not trusted


def test_a_completion_is_the_text_after_its_beginning() -> None:
    frame = completion_frame("<s>")
    assert (frame.before, frame.after, frame.form, frame.prefill) == ("<s>", "", "completion", True)


# --- haystacks ---


def test_the_built_in_prose_and_code_are_long_enough_for_128k_tokens() -> None:
    for name in ("python-docs", "python-code"):
        characters = sum(map(len, open_source(name).filler(seed=0).bank.pieces))
        assert characters > 4.2 * 131_072
    for name in ("noise", "prose", "legal", "medical", "chat", "code"):
        assert open_source(name).filler(seed=0).limit is None


def test_windows_differ_by_seed_and_never_repeat_unless_asked() -> None:
    source = open_source(SMALL_PROSE)
    first, second = source.filler(seed=1), source.filler(seed=2)
    size = len(first.bank.pieces)
    assert not np.array_equal(first.arrange(50), second.arrange(50))
    assert sorted(first.arrange(10 * size).tolist()) == list(range(size))
    again = open_source(SMALL_PROSE, repeat=True).filler(seed=1)
    assert len(again.arrange(3 * size)) == 3 * size
    assert np.array_equal(first.arrange(10), first.arrange(90)[:10])


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_mixture_keeps_its_proportions_in_every_beginning(share: float) -> None:
    mixture = open_source(f"{SMALL_PROSE}:{share},{SMALL_CODE}:{1 - share:.1f}", unit="paragraph")
    assert isinstance(mixture, Mixture)
    prose = mixture.firsts[1]
    pieces = mixture.bank.pieces
    order = mixture.filler(seed=4).arrange(10**6)
    assert np.array_equal(mixture.filler(seed=4).arrange(100), order[:100])
    changes = np.flatnonzero(np.diff(order) != 1) + 1  # between pages
    assert np.diff(np.concatenate(([0], changes, [len(order)]))).mean() > 4
    assert all(pieces[i].endswith("\n") for i in order[changes - 1])
    for part in (len(order) // 2, len(order)):
        sizes = [len(pieces[i]) for i in order[:part]]
        mine = sum(size for size, i in zip(sizes, order[:part], strict=True) if i < prose)
        assert mine / sum(sizes) == pytest.approx(share, abs=0.08)
    assert not np.array_equal(order, mixture.filler(seed=5).arrange(10**6))


@pytest.mark.slow
def test_stretches_of_a_text_do_not_overlap_while_it_lasts(tmp_path: Path) -> None:
    file = tmp_path / "numbers.txt"
    file.write_text("\n\n".join(f"Line {n} has these words in it and no others at all." for n in range(40_000)))
    source = open_source(str(file))
    assert isinstance(source, TextSource)

    def shared(length: int, depths: int, samples: int) -> float:
        grid = [(d / (depths - 1), s) for d in range(depths) for s in range(samples)]
        clusters = [Cluster.of([Cell("niah", length, depth, sample)]) for depth, sample in grid]
        fitter = Fitter(open_tokenizer("bytes"), completion_frame())
        fitter.share_text([d / (depths - 1) for d in range(depths)])
        size = length - 100  # bytes of a document without its question
        starts, ends = fitter.starts(source.stretch(c, 7, length) for c in clusters)
        assert starts == fitter.starts(source.stretch(c, 7, length) for c in reversed(clusters))[0][::-1]
        read = [set(range(start, start + size // 57)) for start in starts]  # lines of 52 to 56 bytes
        seen, twice = set[int](), 0
        for lines in read:
            twice += len(lines & seen)
            seen |= lines
        found = source.overlap(starts, ends, size)
        assert (found > 0.01) == (twice > 0.01 * sum(map(len, read)))
        return found

    for depths in (2, 3, 5, 11):
        for used in (0.2, 0.75, 0.99):  # of a text of 2.1 million bytes
            assert shared(4096, depths, int(used * len(source.read()) / 4096 / depths)) < 0.001
    assert shared(65_536, 11, 15) > 0.5  # five times the text


def test_documents_over_a_text_without_blank_lines_begin_at_different_places(tmp_path: Path) -> None:
    lines = [f"Line {n} has these words in it and no others at all." for n in range(2000)]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    (tmp_path / "paragraphs.txt").write_text("\n\n".join(lines))
    fitter = Fitter(open_tokenizer("bytes"), completion_frame())
    fitter.share_text([0.5])
    for name in ("lines.txt", "paragraphs.txt"):
        source = open_source(str(tmp_path / name))
        assert isinstance(source, TextSource)
        clusters = [Cluster.of([Cell("niah", 4096, 0.5, sample)]) for sample in range(20)]
        starts, ends = fitter.starts(source.stretch(cluster, 7, 4096) for cluster in clusters)
        assert len(set(starts)) == 20
        assert source.overlap(starts, ends, 4000) == 0
        assert len({source.filler(seed=seed).arrange(1)[0] for seed in range(20)}) > 10


def test_files_folders_and_globs_are_haystacks(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("Second file. It has two sentences.")
    (tmp_path / "a.txt").write_text("First file.\n\nTwo paragraphs.")
    (tmp_path / "c.bin").write_bytes(b"\x00\xff")
    for name in (str(tmp_path), f"{tmp_path}/*.txt"):
        source = open_source(name)
        assert isinstance(source, TextSource)
        assert "".join(source.bank.pieces).split() == (
            "First file. Two paragraphs. Second file. It has two sentences.".split()
        )


def test_unreadable_haystacks_say_why(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no haystack"):
        open_source(str(tmp_path / "none"))
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(SourceError, match="not a UTF-8 text"):
        open_source(str(tmp_path / "bad.txt")).filler(seed=0)
    (tmp_path / "empty.txt").write_text(" \n ")
    with pytest.raises(SourceError, match="contains no text"):
        open_source(str(tmp_path / "empty.txt")).filler(seed=0)
    with pytest.raises(SourceError, match="weight"):
        open_source("prose:0,code:1")
    for weight in ("1.2.3", ".", "9" * 400):
        with pytest.raises(SourceError, match="weight"):
            open_source(f"prose:{weight},code:1")
    with pytest.raises(SourceError, match="there is no haystack"):
        open_source("x" * 300)
    with pytest.raises(UsageError, match="no user 'nobody-of-this-name'"):
        open_source("~nobody-of-this-name/text.txt")


def test_one_text_is_opened_by_sentence_by_paragraph_and_for_repeated_use_in_any_order() -> None:
    plain = open_source("python-docs")
    size = len(plain.filler(seed=0).bank.pieces)
    assert len(open_source("python-docs", unit="paragraph").filler(seed=0).bank.pieces) < size
    assert open_source("python-docs", repeat=True).filler(seed=0).limit is None
    assert open_source("python-docs") is plain


def test_a_mixture_may_have_a_text_of_one_long_paragraph(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text(" ".join(f"Sentence number {n} is about the sea." for n in range(3000)))
    (tmp_path / "many.txt").write_text("\n\n".join(f"Paragraph number {n} is short." for n in range(3000)))
    for repeat in (False, True):
        mixture = open_source(f"{tmp_path}/one.txt:0.5,{tmp_path}/many.txt:0.5", repeat=repeat)
        assert len(mixture.filler(seed=1).arrange(200)) == 200


def test_a_haystack_s_digest_changes_with_its_text(tmp_path: Path) -> None:
    first, second = tmp_path / "1.txt", tmp_path / "2.txt"
    first.write_text("One sentence. And one more.")
    second.write_text("One sentence. And one other.")
    assert open_source(str(first)).digest != open_source(str(second)).digest


# --- splitting ---


def test_sentences_keep_their_white_space_so_that_nothing_is_lost() -> None:
    text = 'He came, e.g. by boat. "Why?" she said. It was 3.5 m long.\n\nNew paragraph here! Dr. Ford left.'
    pieces = split_sentences(text)
    assert pieces == [
        "He came, e.g. by boat.",
        ' "Why?" she said.',
        " It was 3.5 m long.\n\n",
        "New paragraph here!",
        " Dr. Ford left.\n\n",
    ]
    assert "".join(pieces) == "".join(split_paragraphs(text))


def test_code_is_cut_after_blank_lines_and_between_statements_but_not_inside_brackets() -> None:
    code = "import x\n\n\ndef a():\n    y = 1\n\n    return y\n\n\nclass B:\n    pass\n"
    assert split_blocks(code) == [
        "import x\n\n\n",
        "def a():\n    y = 1\n\n",
        "    return y\n\n\n",
        "class B:\n    pass\n",
    ]
    long = "".join(f"value_{n} = compute(\n    first_{n},\n    second_{n},\n)\n" for n in range(20))
    pieces = split_blocks(long)
    assert "".join(pieces) == long
    assert len(pieces) > 5
    assert all(piece.startswith("value_") and piece.endswith(")\n") for piece in pieces)


@given(st.text(alphabet="ab .!?\n\"'A1", max_size=300))
def test_splitting_loses_no_word(text: str) -> None:
    assert "".join(split_sentences(text)).split() == text.split()
    assert "".join(split_finely(4 * text)).split() == (4 * text).split()


@pytest.mark.parametrize("between", [" ", ". ", ", ", "; "], ids=["words alone", "stops", "commas", "semicolons"])
def test_one_sentence_or_lower_case_is_cut_finely_and_facts_stand_at_their_depth(tmp_path: Path, between: str) -> None:
    draw = random.Random(3)
    words = "garden river stone letter winter paper engine".split()
    clauses = [" ".join(draw.choices(words, k=30)) for _ in range(300)]
    (tmp_path / "own.txt").write_text(between.join(clauses))
    source = open_source(str(tmp_path / "own.txt"))
    assert isinstance(source, TextSource)
    assert source.long_sentences == 1.0
    assert max(map(len, source.bank.pieces)) <= LONG_SENTENCE
    task = registry.task(TaskSpec(name="niah", options={"haystack": str(tmp_path / "own.txt")}))
    for depth in (0.25, 0.5, 0.75):
        document = fit(task.write([Cell("niah", 2000, depth, 0)], seed=0), WhitespaceTokenizer(), completion_frame())
        [fact] = document.planted(document.probes[0])
        assert abs(fact.depth - depth) < 0.06


def test_ordinary_sentences_are_not_cut_again() -> None:
    text = "It rained. " * 3 + ("A long sentence, with commas, " * 20).strip(", ") + ". The end."
    assert split_finely(text) == split_sentences(text)
