"""OpenAI's own GraphWalks (`openai/graphwalks`) and MRCR (`openai/mrcr`) data: prompts, answers and scores as they are.

A sample has the length it has: the length of a cell is the limit, and samples that are longer in the tokenizer of the
tested model are left out and counted. The digest of the files is in the manifest, so that versions are never mixed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

import msgspec
from pydantic import Field

from leadline.core.contracts import DocumentFitter
from leadline.core.drafts import Draft, DraftQuestion
from leadline.core.errors import SourceError
from leadline.core.files import parse_json
from leadline.core.format import format_length
from leadline.core.turns import Turn, TurnRole, closes, joined, opens
from leadline.core.types import Cell, Document
from leadline.features.published.dataset_tasks import PublishedSamples, published_sample
from leadline.features.published.row_files import DataRow, RowKind, data_files, digest_of, read_rows
from leadline.scorers.answer_sets import FINAL_ANSWER, GRAPHWALKS_SCORERS
from leadline.scorers.mrcr import MRCR_SCORERS, WRONG_ORDINAL
from leadline.tasks.wording import verbatim_draft
from leadline.text.downloads import find_data

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class RowFile(Generic[S]):
    """The samples of some Parquet or JSON lines files."""

    name: str
    digest: str
    samples: tuple[S, ...]


def _read(
    name: str, path: Path, read: Callable[[DataRow, str], S], wanted: Callable[[S], bool], what: str
) -> RowFile[S]:
    """`read` makes a sample of a row and its name; those `wanted` are kept."""
    files, kind = data_files(path), RowKind("a row of this data set", f"see docs/{name}.md")
    every = (read(row, f"{file.stem}/{n}") for file in files for n, row in enumerate(read_rows(file, kind)))
    samples = tuple(filter(wanted, every))
    if not samples:
        raise SourceError(f"there is no sample {what}", where=str(path))
    return RowFile(f"{name} ({path.name})", digest_of(files), samples)


# --- GraphWalks -----------------------------------------------------------------------------------
#
# A row has `prompt`, `answer` or `answer_nodes` (a list of nodes, or JSON text of one) and `problem_type`. Depths of
# the walk and answers of `parents` were repaired in February 2026.

_DEPTH = re.compile(r"depth (\d+)")


@dataclass(frozen=True, slots=True)
class WalkSample:
    id: str
    prompt: str
    nodes: tuple[str, ...]
    kind: str

    @property
    def operation(self) -> str:
        """`parents`, or `bfs 2` by the last depth that the prompt names."""
        depths = _DEPTH.findall(self.prompt[-2000:])
        return f"bfs {depths[-1]}" if self.kind == "bfs" and depths else self.kind


def _walk_sample(row: DataRow, name: str) -> WalkSample:
    answer: Any = row.value.get("answer_nodes", row.value.get("answer"))
    nodes: Any = parse_json(answer, row.where) if isinstance(answer, str) else answer
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        raise row.error("answer_nodes is not a list of nodes")
    return WalkSample(name, row.text("prompt"), tuple(nodes), row.text("problem_type"))


@cache
def open_graphwalks(path: Path, kind: str) -> RowFile[WalkSample]:
    return _read("graphwalks", path, _walk_sample, lambda sample: kind in ("all", sample.kind), f"of the type {kind}")


class GraphWalksDataset(PublishedSamples):
    """OpenAI's GraphWalks data (MIT licence): breadth-first search and parents on graphs as published."""

    version: ClassVar[str] = "1"

    data: str = Field("graphwalks", description="a Parquet or JSON lines file, a folder of them, or `sources pull`")
    kind: Literal["all", "bfs", "parents"] = Field("all", description="only samples of this type")
    answer_tokens: int = Field(2048, ge=1, description="tokens for the answer; published runs set no limit")

    def opened(self) -> RowFile[WalkSample]:
        return open_graphwalks(find_data(self.data, folders=True), self.kind)

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        (cell,) = cells
        sample = published_sample(self.opened(), cell)
        return verbatim_draft(
            sample.prompt,
            DraftQuestion(
                cell=cell,
                text="",
                answer_prefix="",
                targets=sample.nodes,
                allowance=self.answer_tokens,
                scorers=GRAPHWALKS_SCORERS,
                labels={"sample_id": sample.id, "operation": sample.operation},
                dataset="graphwalks",
                family="walks",
                answer_form=FINAL_ANSWER,
                fixed_allowance=True,
            ),
            on_overflow="drop",
        )


# --- MRCR -----------------------------------------------------------------------------------------
#
# A row has `prompt` (the messages, as a list or as JSON text), `answer` (which begins with the code word),
# `random_string_to_prepend` and `n_needles`.

BINS = tuple((4096 << n, 8192 << n) for n in range(8))
"""Tokens of prompt and answer: 4,096 to 8,192, and so on to 1,048,576. The upper end belongs to a bin."""
SPARE_TOKENS = 32
"""For the answer, beyond the tokens of the right one."""


@dataclass(frozen=True, slots=True)
class MrcrSample:
    id: str
    turns: tuple[Turn, ...]
    answer: str
    code_word: str
    needles: int
    tokens: int | None
    """Of prompt and answer, where the row states them."""

    @property
    def asked_turn(self) -> int | None:
        """The turn with the text that is asked for."""
        text = self.answer.removeprefix(self.code_word).strip()
        return next((n for n, t in enumerate(self.turns) if t.role == "assistant" and t.text.strip() == text), None)

    def same_requests(self) -> list[int]:
        """The answers to the same request, in their order."""
        if not self.asked_turn:
            return []
        request = self.turns[self.asked_turn - 1].text
        answered = zip(self.turns, self.turns[1:], strict=False)
        return [
            n for n, (before, turn) in enumerate(answered, 1) if before.text == request and turn.role == "assistant"
        ]


def _mrcr_sample(row: DataRow, name: str) -> MrcrSample:
    prompt = row.value.get("prompt") or (row.value.get("responses_create_params") or {}).get("input")
    messages: Any = parse_json(prompt, row.where) if isinstance(prompt, str) else prompt
    if not isinstance(messages, list) or not messages:
        raise row.error("prompt is not a list of messages")
    turns = tuple(_turn(message, row) for message in messages)
    if turns[0].role != "user" or turns[-1].role != "user":
        raise row.error("the conversation does not begin and end with a user's turn")
    answer = row.value.get("answer") or row.value.get("expected_answer")
    code_word = row.text("random_string_to_prepend")
    if not code_word or not isinstance(answer, str) or not answer.startswith(code_word):
        raise row.error("answer does not begin with random_string_to_prepend")
    needles, tokens = row.value.get("n_needles"), row.value.get("n_tokens")
    if not isinstance(needles, int):
        raise row.error("n_needles is not a number")
    return MrcrSample(name, turns, answer, code_word, needles, tokens if isinstance(tokens, int) else None)


def _turn(message: Any, row: DataRow) -> Turn:
    role, text = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
    roles: dict[str, TurnRole] = {known: known for known in get_args(TurnRole)}
    if role not in roles or not isinstance(text, str):
        raise row.error(f"a message has the role {role!r}; only texts of {', '.join(roles)} are known")
    return Turn(roles[role], text)


@cache
def open_mrcr(path: Path, needles: int) -> RowFile[MrcrSample]:
    return _read(
        "mrcr",
        path,
        _mrcr_sample,
        lambda sample: needles in (0, sample.needles),
        f"with {needles or 'any'} needles",
    )


def bin_of(tokens: int) -> str:
    """`bin 1: 4k to 8k`, and so on."""
    for number, (low, high) in enumerate(BINS, 1):
        if tokens <= high:
            least = low if number == 1 else low + 1
            return f"bin {number}: {format_length(low)} to {format_length(high)}" if tokens >= least else "below 4k"
    return "above 1M"


class MrcrDataset(PublishedSamples):
    """OpenAI's MRCR data (MIT licence): repeat the i-th of 2, 4 or 8 items alike from a conversation as published."""

    version: ClassVar[str] = "1"

    data: str = Field("mrcr", description="a Parquet or JSON lines file, a folder of them, or `sources pull mrcr`")
    needles: int = Field(0, ge=0, description="only samples with 2, 4 or 8 needles; 0 takes all")
    answer_tokens: int = Field(0, ge=0, description="tokens for the answer; 0 for enough in the tested tokenizer")

    def opened(self) -> RowFile[MrcrSample]:
        return open_mrcr(find_data(self.data, folders=True), self.needles)

    def document(self, cells: Sequence[Cell], *, seed: int, fitter: DocumentFitter) -> Document:
        """The conversation as it is, with an allowance and a bin that are counted in this model's tokenizer."""
        draft = self.write(cells, seed=seed)
        [question] = draft.questions
        size = len(fitter.tokenizer.encode(question.targets[0]))
        sized = msgspec.structs.replace(question, allowance=self.answer_tokens or size + SPARE_TOKENS)
        document = fitter.fit(replace(draft, questions=(sized,)))
        [probe] = document.probes
        if "bin" not in probe.question.labels:
            labels = {**probe.question.labels, "bin": bin_of(probe.prompt_tokens + size)}
            probe = replace(probe, question=msgspec.structs.replace(probe.question, labels=labels))
        return replace(document, probes=(probe,))

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        (cell,) = cells
        sample = published_sample(self.opened(), cell)
        *turns, last = sample.turns
        end = turns[-1].role if turns else last.role
        same_requests = sample.same_requests()
        others = tuple(sample.code_word + sample.turns[n].text for n in same_requests if n != sample.asked_turn)
        return verbatim_draft(
            joined(turns) + closes(end, last.role) if turns else "",
            DraftQuestion(
                cell=cell,
                text=(opens(last.role, end) if turns else "") + last.text,
                answer_prefix="",
                targets=(sample.answer,),
                allowance=self.answer_tokens or 1,
                scorers=MRCR_SCORERS,
                labels=_mrcr_labels(sample),
                dataset=f"mrcr {sample.needles} needles",
                ordinal=_ordinal(sample, same_requests),
                mistakes={WRONG_ORDINAL: others} if others else {},
                match="any",
                family="mrcr",
                answer_form="{answer}",
                code_word=sample.code_word,
            ),
            on_overflow="drop",
            conversation=True,
        )


def _ordinal(sample: MrcrSample, same_requests: Sequence[int]) -> int:
    """Which of the texts alike is asked for; 0 if that is not known."""
    if sample.asked_turn is None:
        return 0
    return same_requests.index(sample.asked_turn) + 1 if sample.asked_turn in same_requests else 1


def _mrcr_labels(sample: MrcrSample) -> dict[str, str]:
    labels = {"sample_id": sample.id, "needles": str(sample.needles)}
    if sample.tokens is not None:
        labels["bin"] = bin_of(sample.tokens)
    if sample.asked_turn is not None:
        before = sum(len(turn.text) for turn in sample.turns[: sample.asked_turn])
        labels["depth"] = f"{before / max(sum(len(turn.text) for turn in sample.turns), 1):.4f}"
    return labels
