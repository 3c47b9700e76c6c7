"""Do facts survive compaction? A session of exact length with facts of six kinds, compacted, and asked about.

Facts are identifiers, paths, numbers, decisions, standing instructions and open tasks, each of several projects alike,
so that neither the newest fact nor the only one of its kind is an answer by position. Depth is the age of the fact: 0
is the oldest. The question comes with what the compactor retained, or with the session itself (`compactor=none`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import msgspec
from pydantic import Field, model_validator

from leadline.core.answers import Failure
from leadline.core.contracts import DocumentFitter, Source, TextOrigin, Tokenizer
from leadline.core.drafts import Draft, DraftQuestion, Fact
from leadline.core.errors import UsageError
from leadline.core.seeds import Split, rng
from leadline.core.types import Cell, Document, Planted, Question, Reading
from leadline.features.compaction.compactors import (
    AT_ONCE,
    NONE,
    Compacted,
    CompactionFailed,
    Compactor,
    check_compactor,
    code_of,
)
from leadline.tasks.placement import fact_depths
from leadline.tasks.wording import SCORERS, PromptPart, WordedTask
from leadline.tasks.words import WORDS, draw_new, draw_new_value
from leadline.text.sources import open_source, stretch_of

NEAR_CHARACTERS = 300
"""After the name of a project: a summary may name it in a heading, and its values in a list."""
SAY_UNKNOWN = ' If the session does not say, answer "not known".'
KINDS = {
    "identifier": ("The ticket of project {key} is {value}.", "What is the ticket of project {key}?"),
    "path": ("Project {key} keeps its settings in {value}.", "In which file does project {key} keep its settings?"),
    "number": ("The port of project {key} is {value}.", "What is the port of project {key}?"),
    "decision": ("We decided that project {key} uses the {value} driver.", "Which driver does project {key} use?"),
    "instruction": (
        "From now on, sign every message about project {key} with the word {value}.",
        "With which word are messages about project {key} signed?",
    ),
    "open task": (
        "Still to do for project {key}: renew the {value} certificate.",
        "Which certificate is still to be renewed for project {key}?",
    ),
}


_PROJECT = re.compile(r"project (\S+?)(?=[\s?])")
"""In the questions of all kinds."""


def kind_part(kind: str) -> str:
    """The name of the text of a fact of this kind."""
    return f"fact_{kind.replace(' ', '_')}"


PARTS = {
    "instruction": PromptPart(("Below is what is kept of the session of an agent.\n\n",), opens=True),
    "question": PromptPart(("\n\nQuestion: {asked}",), needs=("asked",), asks=True),
    "prefix": PromptPart(("Answer:",)),
    **{kind_part(kind): PromptPart((text,), needs=("key", "value"), planted=True) for kind, (text, _) in KINDS.items()},
}


@dataclass(frozen=True, slots=True)
class Memory:
    """One planted fact."""

    kind: str
    key: str
    value: str


class Compaction(WordedTask):
    """Recall facts from what a compactor kept of a long session. Depth is their age: 0 is the oldest."""

    version: ClassVar[str] = "2"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh",)
    category: ClassVar[str] = "agents"

    haystack: str = Field("agent", description="agent, chat, code, prose, a path, or a mixture")
    repeat: bool = Field(False, description="use the haystack more than once when it is too short")
    compactor: str = Field(
        NONE,
        description="none, compact:tail, compact:drop-tools, compact:prompt, compact:provider, or ./FILE.py:NAME",
        json_schema_extra={"names": True},  # several, with commas, are a sweep
    )
    command: str = Field("", description="a program as the compactor: session on stdin, what is kept on stdout")
    compactor_model: str = Field(
        "", description="the model that summarises for compact:prompt, or whose provider compacts for compact:provider"
    )
    keep: float = Field(0.25, gt=0, le=1, description="share of the length that the compactor may keep")
    rounds: int = Field(1, ge=1, le=64, description="rounds of compaction, as the session grows")
    compactor_timeout: float = Field(600.0, gt=0, description="seconds for one round of the compactor")
    compactor_price: str = Field(
        "", description="of a million tokens that compactor_model reads and writes, as 0.15/0.60: money on the record"
    )
    projects: int = Field(3, ge=2, le=16, description="facts of each kind; those not asked for are distractors")
    answer_tokens: int = Field(48, ge=1, description="tokens for the answer")

    @model_validator(mode="after")
    def _compactor_is_known(self) -> Compaction:
        check_compactor(self.compactor, self.command, self.compactor_model)
        parse_price(self.compactor_price)
        return self

    def parts(self) -> Mapping[str, PromptPart]:
        return PARTS

    def sources(self) -> Sequence[TextOrigin]:
        return (self._source(), *code_of(self.compactor, self.command, self.compactor_model))

    def _source(self) -> Source:
        return open_source(self.haystack, repeat=self.repeat)

    @property
    def preparation(self) -> str:
        waits = not self.no_context and (self.command or self.compactor not in AT_ONCE)
        return "compacting session" if waits else ""

    def document(self, cells: Sequence[Cell], *, seed: int, fitter: DocumentFitter) -> Document:
        whole = fitter.fit(self.write(cells, seed=seed))
        if (self.compactor == NONE and not self.command) or self.no_context:
            return whole
        [probe], draft = whole.probes, self.write(cells, seed=seed)
        session = whole.text[whole.body_start_characters : probe.cut_characters]
        compactor = Compactor(
            self.compactor, max(1, int(self.keep * cells[0].length)), self.command, self.compactor_model,
            self.compactor_timeout, self.rounds,
        )  # fmt: skip
        try:
            compacted = compactor.compact(session, fitter.tokenizer)
        except CompactionFailed as problem:
            failure = Failure("compaction", f"{self.command or self.compactor}: {problem}")
            return replace(whole, probes=(replace(probe, not_asked=failure),))
        document = fitter.fit(_retained_draft(draft, compacted, parse_price(self.compactor_price)))
        facts = tuple(
            retained
            for fact in whole.planted(probe)
            if (retained := retained_fact(fact, probe.question, document, len(draft.head), fitter.tokenizer))
        )
        return replace(document, facts=facts, preparation_seconds=round(compacted.seconds, 3))

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        (cell,) = cells
        draw = rng(seed, "compaction", *cell.coordinates)
        memories = self._memories(draw)
        kind = list(KINDS)[cell.sample % len(KINDS)]
        asked_memory = next(memory for memory in memories if memory.kind == kind)
        [depth] = fact_depths(cell, 0.0, 1, draw)
        before: list[Fact] = []
        after: list[Fact] = []
        asked_fact: Fact | None = None
        for number, memory in enumerate(memories):
            text = self.fill(kind_part(memory.kind), key=memory.key, value=memory.value)
            if memory is asked_memory:
                asked_fact = Fact(f"{cell.key}#asked", text, depth, cell.length)
                continue
            # Alternately before and after it, so that the oldest or newest fact is not always the one asked for.
            earlier = draw.random() < (depth if 0 < depth < 1 else 0.5)
            fact_depth = depth * draw.random() if earlier else depth + (1 - depth) * draw.random()
            (before if earlier else after).append(Fact(f"{cell.key}#{number}", text, fact_depth, cell.length))
        assert asked_fact is not None
        filler = stretch_of(self._source(), self.cluster(cells), seed, tokens=cell.length)
        return self.new_draft(cells, filler, (*before, asked_fact, *after), (self._ask(cell, asked_memory, memories),))

    def _memories(self, draw: random.Random) -> list[Memory]:
        taken: set[str] = set()
        keys = [draw_new_value("words", draw, taken, self.split) for _ in range(self.projects)]
        return [Memory(kind, key, draw_memory(kind, draw, taken, self.split)) for kind in KINDS for key in keys]

    def _ask(self, cell: Cell, asked_memory: Memory, memories: Sequence[Memory]) -> DraftQuestion:
        question = KINDS[asked_memory.kind][1].format(key=asked_memory.key) + SAY_UNKNOWN
        return DraftQuestion(
            cell=cell,
            text=self.fill("question", asked=question),
            answer_prefix=self.fill("prefix"),
            targets=(asked_memory.value,),
            allowance=self.answer_tokens,
            scorers=SCORERS["all"],
            facts=(f"{cell.key}#asked",),
            distractors=tuple(memory.value for memory in memories if memory is not asked_memory),
            labels={
                "operation": asked_memory.kind,
                "compactor": self.command or self.compactor,
                "rounds": str(self.rounds),
            },
            family="memory",
        )


def parse_price(text: str) -> tuple[float, float] | None:
    """Prices of a million tokens in and out; None for an empty text."""
    if not text:
        return None
    try:
        read, written = map(float, text.split("/"))
        if min(read, written) >= 0:
            return read, written
    except ValueError:
        pass
    raise UsageError(f"{text!r} is not a price", where="compactor_price", fix="write 0.15/0.60: in and out, a million")


def draw_memory(kind: str, draw: random.Random, taken: set[str], split: Split) -> str:
    """A value of a kind that was not drawn before."""
    nouns = WORDS["nouns"]
    forms: dict[str, Callable[[], str]] = {
        "identifier": lambda: (
            f"{draw.choice('BDFHKMPRTVXZ')}{draw.choice('CGJLNQSW')}-{draw.randrange(10_000, 100_000)}"
        ),
        "path": lambda: f"/srv/{draw.choice(nouns)}/{draw.choice(nouns)}.toml",
        "number": lambda: str(draw.randrange(10_000, 65_536)),
    }
    return draw_new(forms.get(kind, lambda: draw.choice(nouns)), taken, split)


def retained_fact(
    fact: Planted, question: Question, document: Document, head: int, tokenizer: Tokenizer
) -> Planted | None:
    """The position of a fact in the retained text, which follows `head` characters of instruction. The fact has its own
    words there, or its value is in the line of its project or shortly after the project's name. None if it is not
    there."""
    text, start = document.text, document.body_start_characters + head
    start_of_fact = text.find(fact.text, start)
    end = start_of_fact + len(fact.text)
    if start_of_fact < 0:
        words = (_PROJECT.findall(question.text)[-1], question.targets[0])
        key, value = (rf"(?<![\w/-]){re.escape(word)}(?![\w-])" for word in words)
        said = re.compile(rf"{key}[^\n]*?{value}|{value}[^\n]*?{key}|{key}.{{0,{NEAR_CHARACTERS}}}?{value}", re.DOTALL)
        match = said.search(text, start)
        if match is None:
            return None
        start_of_fact, end = match.span()
    before = len(tokenizer.encode(text[:start_of_fact])) - document.body_start
    tokens = len(tokenizer.encode(text[start_of_fact:end]))
    room = max(len(document.ids) - document.body_start - tokens, 1)
    return replace(fact, start=before, end=before + tokens, depth=round(min(before / room, 1.0), 6))


def _retained_draft(draft: Draft, compacted: Compacted, price: tuple[float, float] | None) -> Draft:
    """The question with the retained text in place of the session, and the sizes of both as labels."""
    notes = {
        "retained": str(compacted.tokens),
        "session": str(compacted.before),
    }
    if compacted.read:
        notes |= {"compactor_read": str(compacted.read), "compactor_written": str(compacted.written)}
    if compacted.read and price:
        money = (compacted.read * price[0] + compacted.written * price[1]) / 1e6
        notes["compactor_money"] = f"{money:.6g}"
    return replace(
        draft,
        head="" if compacted.kept else f"{draft.head}{compacted.text}",
        filler=None,
        facts=(),
        kept=compacted.kept,
        questions=tuple(
            msgspec.structs.replace(question, labels={**question.labels, **notes}) for question in draft.questions
        ),
    )
