"""OpenAI's own MRCR data (`openai/mrcr`): its messages as they are, its answers, its bins.

A row has `prompt` (the messages, as a list or as JSON text), `answer` (which begins with the code word),
`random_string_to_prepend` and `n_needles`. A sample has the length it has: the length of a cell is the limit, and
samples that are longer in the tokenizer of the tested model are left out and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, get_args

from pydantic import Field

from leadline.core.contracts import DocumentFitter, Origin, Task
from leadline.core.drafts import Draft, Question
from leadline.core.errors import SourceError
from leadline.core.files import parse_json
from leadline.core.format import format_length
from leadline.core.seeds import bulk_rng
from leadline.core.turns import Role, Turn, closes, joined, opens
from leadline.core.types import Cell, Document, document_name
from leadline.store.row_files import DataRow, data_files, digest_of, read_rows
from leadline.tasks.mrcr import SCORERS, WRONG_ORDINAL
from leadline.text.downloads import find_data

BINS = tuple((4096 << n, 8192 << n) for n in range(8))
"""Tokens of prompt and answer: 4,096 to 8,192, and so on to 1,048,576. The upper end belongs to a bin."""
SPARE_TOKENS = 32
"""For the answer, beyond the tokens of the right one."""


@dataclass(frozen=True, slots=True)
class MrcrSample:
    id: str
    turns: tuple[Turn, ...]
    answer: str
    opening: str
    needles: int
    tokens: int | None
    """Of prompt and answer, where the row states them."""

    @property
    def place(self) -> int | None:
        """The turn with the text that is asked for."""
        text = self.answer.removeprefix(self.opening).strip()
        return next((n for n, t in enumerate(self.turns) if t.role == "assistant" and t.text.strip() == text), None)

    def alike(self) -> list[int]:
        """The answers to the same request, in their order."""
        if not self.place:
            return []
        asked = self.turns[self.place - 1].text
        answered = zip(self.turns, self.turns[1:], strict=False)
        return [n for n, (one, two) in enumerate(answered, 1) if one.text == asked and two.role == "assistant"]


@dataclass(frozen=True, slots=True)
class MrcrFile:
    name: str
    digest: str
    samples: tuple[MrcrSample, ...]


@cache
def open_mrcr(place: Path, needles: int) -> MrcrFile:
    files = data_files(place)
    found = [_sample(row, f"{file.stem}/{n}") for file in files for n, row in enumerate(read_rows(file))]
    found = [sample for sample in found if not needles or sample.needles == needles]
    if not found:
        raise SourceError(f"there is no sample with {needles or 'any'} needles", where=str(place))
    return MrcrFile(f"mrcr ({place.name})", digest_of(files), tuple(found))


def _sample(row: DataRow, name: str) -> MrcrSample:
    prompt = row.value.get("prompt") or (row.value.get("responses_create_params") or {}).get("input")
    messages: Any = parse_json(prompt, row.where) if isinstance(prompt, str) else prompt
    if not isinstance(messages, list) or not messages:
        raise row.error("prompt is not a list of messages")
    turns = tuple(_turn(message, row) for message in messages)
    if turns[0].role != "user" or turns[-1].role != "user":
        raise row.error("the conversation does not begin and end with a user's turn")
    answer = row.value.get("answer") or row.value.get("expected_answer")
    opening = row.text("random_string_to_prepend")
    if not isinstance(answer, str) or not answer.startswith(opening):
        raise row.error("answer does not begin with random_string_to_prepend")
    needles, tokens = row.value.get("n_needles"), row.value.get("n_tokens")
    if not isinstance(needles, int):
        raise row.error("n_needles is not a number")
    return MrcrSample(name, turns, answer, opening, needles, tokens if isinstance(tokens, int) else None)


def _turn(message: Any, row: DataRow) -> Turn:
    given, text = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
    roles: dict[str, Role] = {role: role for role in get_args(Role)}
    if given not in roles or not isinstance(text, str):
        raise row.error(f"a message has the role {given!r}; only texts of {', '.join(roles)} are known")
    return Turn(roles[given], text)


def bin_of(tokens: int) -> str:
    """`bin 1: 4k to 8k`, and so on."""
    for number, (low, high) in enumerate(BINS, 1):
        if tokens <= high:
            least = low if number == 1 else low + 1
            return f"bin {number}: {format_length(low)} to {format_length(high)}" if tokens >= least else "below 4k"
    return "above 1M"


class MrcrDataset(Task):
    """OpenAI's MRCR data (MIT licence): repeat the i-th of 2, 4 or 8 items alike from a conversation as published."""

    version: ClassVar[str] = "1"
    category: ClassVar[str] = "published"

    data: str = Field("mrcr", description="a Parquet or JSON lines file, a folder of them, or `sources pull mrcr`")
    needles: int = Field(0, ge=0, description="only samples with 2, 4 or 8 needles; 0 takes all")
    answer_tokens: int = Field(0, ge=0, description="tokens for the answer; 0 for enough in the tested tokenizer")

    @property
    def has_depth(self) -> bool:
        return False

    def opened(self) -> MrcrFile:
        return open_mrcr(find_data(self.data, folders=True), self.needles)

    def sources(self) -> Sequence[Origin]:
        return (self.opened(),)

    def most_samples(self) -> int:
        return len(self.opened().samples)

    def document(self, cells: Sequence[Cell], *, seed: int, fitter: DocumentFitter) -> Document:
        """The conversation as it is, with an allowance and a bin that are counted in this model's tokenizer."""
        draft = self.write(cells, seed=seed)
        [question] = draft.questions
        answer = question.targets[0] if isinstance(question.targets, tuple) else ""
        size = len(fitter.tokenizer.encode(answer))
        asked = replace(question, allowance=self.answer_tokens or size + SPARE_TOKENS)
        document = fitter.fit(replace(draft, questions=(asked,)))
        [probe] = document.probes
        if "bin" not in probe.labels:
            probe = replace(probe, labels={**probe.labels, "bin": bin_of(probe.prompt_tokens + size)})
        return replace(document, probes=(probe,))

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        (cell,) = cells
        file = self.opened()
        # A fixed random order, as for every published benchmark.
        sample = file.samples[int(bulk_rng("published", file.name).permutation(len(file.samples))[cell.sample])]
        *turns, last = sample.turns
        end = turns[-1].role if turns else last.role
        alike = sample.alike()
        others = tuple(sample.opening + sample.turns[n].text for n in alike if n != sample.place)
        return Draft(
            id=document_name(cells),
            cluster=document_name(cells),
            head=joined(turns) + closes(end, last.role) if turns else "",
            filler=None,
            facts=(),
            questions=(
                Question(
                    cell=cell,
                    text=(opens(last.role, end) if turns else "") + last.text,
                    answer_prefix="",
                    targets=(sample.answer,),
                    allowance=self.answer_tokens or 1,
                    scorers=SCORERS,
                    labels=_labels(sample, alike),
                    mistakes={WRONG_ORDINAL: others} if others else {},
                    match="any",
                    family="mrcr",
                    answer_form="{answer}",
                    opening=sample.opening,
                ),
            ),
            overlong="drop",
            conversation=True,
        )


def _labels(sample: MrcrSample, alike: Sequence[int]) -> dict[str, str]:
    labels = {
        "sample_id": sample.id,
        "dataset": f"mrcr {sample.needles} needles",
        "needles": str(sample.needles),
    }
    if sample.tokens is not None:
        labels["bin"] = bin_of(sample.tokens)
    if sample.place is not None:
        labels["ordinal"] = str(alike.index(sample.place) + 1) if sample.place in alike else "1"
        before = sum(len(turn.text) for turn in sample.turns[: sample.place])
        labels["depth"] = f"{before / max(sum(len(turn.text) for turn in sample.turns), 1):.4f}"
    return labels
