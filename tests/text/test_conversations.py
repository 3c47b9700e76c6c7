"""Conversations: every family of chat templates writes them as its own text, to the token, and gets the turns back."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from leadline.core import registry
from leadline.core.contracts import Task, Tokenizer
from leadline.core.errors import LengthError, TokenizerError, UsageError
from leadline.core.spec import TaskSpec
from leadline.core.turns import PLAIN_TURNS, Turn, closes, joined, opens
from leadline.core.types import Cell, Document, Frame
from leadline.run.export_prompts import plain_line
from leadline.text.chat import ChatTemplate, completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import ByteTokenizer, WhitespaceTokenizer
from support.chat_templates import TEMPLATES
from support.toy_tokenizers import toy_tokenizer

TASK: Task = registry.task(TaskSpec(name="mrcr", options={"needles": 2, "lines": 4}))
TOKENIZERS: dict[str, Tokenizer] = {
    "whitespace": WhitespaceTokenizer(),
    "bytes": ByteTokenizer(),
    "gpt2": toy_tokenizer("gpt2"),
    "unigram": toy_tokenizer("unigram"),
    "llama2": toy_tokenizer("llama2"),
}
SCALE = {"bytes": 4}
"""How many times as long its prompts are."""


def cells(tokenizer: str, *lengths: int, depths: tuple[float, ...] = (0.0, 0.5, 1.0)) -> list[Cell]:
    return [Cell("mrcr", n * SCALE.get(tokenizer, 1), d, 1) for n in lengths for d in depths]


def assert_exact(document: Document, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
    for probe in document.probes:
        text, ids = document.prompt_text(probe), document.prompt_ids(probe)
        assert np.array_equal(tokenizer.encode(text), ids)
        assert len(ids) == probe.prompt_tokens == probe.cell.length - probe.question.allowance
        turns = document.turns(probe)
        assert [turn.role for turn in turns] == ["user", "assistant"] * (len(turns) // 2) + ["user"]
        if template is not None:
            assert template.render([{"role": turn.role, "content": turn.text} for turn in turns]) == text
        for fact in document.planted(probe):
            start, end = (document.body_start + place for place in (fact.start, fact.end))
            held = ids[start : min(end, len(ids))]
            assert probe.question.targets[0].removeprefix(probe.question.code_word).strip() in fact.text
            assert len(held) == fact.end - fact.start


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("family", [*TEMPLATES, "plain"])
def test_a_conversation_is_what_the_template_writes_to_the_token(family: str) -> None:
    template = TEMPLATES.get(family)
    frame = template.frame() if template else completion_frame("<s>")
    for name, tokenizer in TOKENIZERS.items():
        fitter = Fitter(tokenizer, frame)
        for reading in (cells(name, 2600, depths=(0.4,)), cells(name, 3300), cells(name, 3200, 4711)):
            document = TASK.document(reading, seed=3, fitter=fitter)
            assert document.conversation
            assert_exact(document, tokenizer, template)


@pytest.mark.parametrize("length", [512, 700, 20_000])
def test_from_the_shortest_to_long(length: int) -> None:
    fitter = Fitter(TOKENIZERS["whitespace"], TEMPLATES["deepseek"].frame())
    document = TASK.document(cells("whitespace", length), seed=5, fitter=fitter)
    assert_exact(document, fitter.tokenizer, TEMPLATES["deepseek"])


def test_a_length_that_cannot_hold_the_items_is_refused_with_one_that_can() -> None:
    fitter = Fitter(TOKENIZERS["gpt2"], TEMPLATES["chatml"].frame())
    with pytest.raises(LengthError, match="cannot hold this") as error:
        TASK.document(cells("gpt2", 300), seed=5, fitter=fitter)
    assert error.value.shortest is not None
    TASK.document(cells("gpt2", error.value.shortest + 40), seed=5, fitter=fitter)


def test_a_cut_ends_a_turn_and_a_shorter_conversation_is_the_beginning_of_a_longer_one() -> None:
    fitter = Fitter(TOKENIZERS["gpt2"], TEMPLATES["gemma"].frame())
    document = TASK.document(cells("gpt2", 1900, 3400), seed=5, fitter=fitter)
    short, long = (document.turns(probe)[:-1] for probe in (document.probes[0], document.probes[-1]))
    assert long[: len(short)] == short
    assert len(long) > len(short) > 4


def test_the_white_space_and_system_text_of_a_template_are_known() -> None:
    frames = {name: template.frame() for name, template in TEMPLATES.items()}
    strips = {name for name, frame in frames.items() if frame.turns and frame.turns.strips}
    assert strips == {"llama2", "llama3", "gemma", "command-r"}
    turns = {name: frame.turns or PLAIN_TURNS for name, frame in frames.items()}
    assert turns["qwen2.5"].before == frames["qwen2.5"].before
    assert "helpful" in frames["qwen2.5"].before
    answers = [text for role, following, text in turns["harmony"].between if (role, following) == ("user", "assistant")]
    assert answers == ["<|end|><|start|>assistant<|channel|>final<|message|>"]
    assert frames["harmony"].after == "<|end|><|start|>assistant"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("{{ messages[-1].content }}", "does not write every turn"),
        ("{% for m in messages %}<{{ loop.index }}>{{ m.content }}{% endfor %}", "differently by their place"),
        ("{% if messages | length > 1 %}{{ raise_exception('one turn only') }}{% endif %}[{{ messages[0].content }}]",
         "one turn only"),
    ],
)  # fmt: skip
def test_a_template_that_cannot_write_a_conversation_is_an_error_only_for_conversations(
    source: str, problem: str
) -> None:
    frame = ChatTemplate(source).frame()
    assert frame.turns is None
    assert problem in frame.no_turns
    fitter = Fitter(TOKENIZERS["whitespace"], frame)
    registry.task(TaskSpec(name="kv")).document([Cell("kv", 900, 0.5, 0)], seed=1, fitter=fitter)
    with pytest.raises(UsageError, match="conversation cannot be laid out") as error:
        TASK.document(cells("whitespace", 2000), seed=1, fitter=fitter)
    assert problem in error.value.what
    assert "template=FILE" in error.value.fix


def test_a_server_whose_template_is_not_known_is_an_error() -> None:
    fitter = Fitter(TOKENIZERS["whitespace"], Frame("", "", "chat", False, "x", extra_tokens=9))
    with pytest.raises(UsageError, match="the chat template is not known"):
        TASK.document(cells("whitespace", 2000), seed=1, fitter=fitter)


def test_turns_out_of_order_are_written_where_the_template_has_them_and_refused_elsewhere() -> None:
    turns = [Turn("user", "a"), Turn("user", "b"), Turn("assistant", "c"), Turn("tool", "d"), Turn("user", "e")]
    marked = joined(turns)
    phi, gemma = TEMPLATES["phi3"].frame().turns, TEMPLATES["gemma"].frame().turns
    assert phi is not None
    assert gemma is not None
    assert phi.split(phi.rendered(marked, "here")) == turns
    assert PLAIN_TURNS.split(PLAIN_TURNS.rendered(marked, "here")) == turns
    with pytest.raises(TokenizerError, match="no user turn after a turn of the user"):
        gemma.rendered(marked, "here")


def test_marks_are_one_character_for_each_side_of_a_boundary() -> None:
    assert len({closes("user", "assistant"), opens("assistant", "user"), closes("assistant", "user")}) == 3


def test_the_frame_of_a_conversation_is_read_back_from_a_manifest() -> None:
    for template in TEMPLATES.values():
        frame = template.frame()
        assert Frame.load(json.loads(json.dumps(dataclasses.asdict(frame)))) == frame
    assert Frame.load({"before": "", "after": "", "form": "chat", "prefill": True, "fingerprint": "old"}).turns is None


def test_a_text_with_the_words_of_the_template_is_refused() -> None:
    frame = TEMPLATES["chatml"].frame()
    turns = dataclasses.replace(PLAIN_TURNS, between=(("user", "assistant", " copper "), ("assistant", "user", "|")))
    fitter = Fitter(TOKENIZERS["whitespace"], dataclasses.replace(frame, turns=turns))
    with pytest.raises(UsageError, match="what the chat template writes between turns"):
        TASK.document(cells("whitespace", 2000), seed=1, fitter=fitter)


def test_exported_prompts_have_the_messages() -> None:
    document = TASK.document(
        cells("whitespace", 2000), seed=1, fitter=Fitter(WhitespaceTokenizer(), completion_frame())
    )
    line = json.loads(plain_line(document, document.probes[0], TASK))
    assert [(m["role"], m["content"]) for m in line["messages"]] == document.turns(document.probes[0])
    assert line["prompt"].startswith("User: ")
