"""Is a tool call still right after a long session?

A session of an agent of exact length says, here and there, which tool a step needs and with which arguments; some of
that changes on the way. The question asks for that step, and the answer is one call. Tools are declared through the
model's own chat template, in the text where it declares none, and no tool is ever run. Distractors are the steps of
other jobs with tools and arguments of the same form, and tools whose names differ by one letter.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pydantic import Field

from leadline.core.contracts import Source
from leadline.core.drafts import Draft, DraftQuestion, Fact, ToolDeclaration
from leadline.core.seeds import rng
from leadline.core.types import Cell, Reading
from leadline.features.tool_calls.scorers import NEAR_MISS, STALE_TOOL, STALE_VALUE
from leadline.features.tool_calls.tools import ToolSet, draw_arguments, other_tool, tool_set
from leadline.tasks.placement import fact_depths
from leadline.tasks.wording import PromptPart, WordedTask
from leadline.tasks.words import draw_new_value
from leadline.text.sources import open_source, stretch_of

INSTRUCTION = (
    "Below is the session of an agent so far. It says which tool each step needs and with which arguments.\n\n"
)
QUESTION = (
    "\n\nNow do step {step}. Make the one tool call that this step needs, with the arguments that the session gives "
    "for it; where a tool or a value has changed, the newest one holds."
)
PARTS = {
    "instruction": PromptPart((INSTRUCTION,), opens=True),
    "tool": PromptPart(("Step {step} needs the tool {tool}.",), needs=("step", "tool"), planted=True),
    "tool_changed": PromptPart(
        ("Change of plan: step {step} now needs the tool {tool}.",), needs=("step", "tool"), planted=True
    ),
    "argument": PromptPart(
        ("For step {step} the {argument} is {value}.",), needs=("step", "argument", "value"), planted=True
    ),
    "argument_changed": PromptPart(
        ("Change of plan: for step {step} the {argument} is now {value}.",),
        needs=("step", "argument", "value"), planted=True,
    ),
    "question": PromptPart((QUESTION,), needs=("step",), asks=True),
    "prefix": PromptPart(("",)),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SessionStep:
    """One step: its facts in the session, in order, and the call that follows from them."""

    name: str
    tool: str
    arguments: Mapping[str, str | int]
    old_tool: str
    old_values: Mapping[str, str | int]


class ToolCalls(WordedTask):
    """Make the tool call that a step of a long session needs. Depth is where its newest facts are."""

    version: ClassVar[str] = "2"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh",)
    category: ClassVar[str] = "agents"

    haystack: str = Field("agent", description="agent, code, chat, prose, a path, or a mixture")
    repeat: bool = Field(False, description="use the haystack more than once when it is too short")
    tools: int = Field(4, ge=2, le=32, description="tools that are declared, without near misses")
    near_misses: bool = Field(True, description="declare a second tool beside each, whose name has one letter more")
    changes: int = Field(2, ge=0, le=5, description="how many of tool and arguments change on the way")
    steps: int = Field(3, ge=1, le=16, description="steps in the session; those not asked for are distractors")
    spread: float = Field(0.2, ge=0, le=1, description="width of the band that holds the newest facts")
    declare: ToolDeclaration = Field(
        "auto", description="tools in the model's chat template, in the text, or in the text where it declares none"
    )
    answer_tokens: int = Field(160, ge=1, description="tokens for the call")

    def parts(self) -> Mapping[str, PromptPart]:
        return PARTS

    def sources(self) -> Sequence[Source]:
        return (self._source(),)

    def _source(self) -> Source:
        return open_source(self.haystack, repeat=self.repeat)

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        (cell,) = cells
        draw = rng(seed, "tool calls", *cell.coordinates)
        known = tool_set(self.tools, self.near_misses, seed, self.split)
        taken: set[str] = set()
        asked_step, *others = (self._step(known, draw, taken) for _ in range(self.steps))
        facts, needed = self._facts(cell, asked_step, fact_depths(cell, self.spread, 5, draw), "asked", draw)
        for number, step in enumerate(others):
            middle = draw.random()
            more, _ = self._facts(cell, step, [middle * draw.random() + (1 - middle) * draw.random() for _ in range(5)],
                                  f"other{number}", draw)  # fmt: skip
            facts += more
        filler = stretch_of(self._source(), self.cluster(cells), seed, tokens=cell.length)
        draft = self.new_draft(cells, filler, facts, (self._ask(cell, asked_step, others, known, needed),))
        return replace(draft, tools=known.declarations(), declare=self.declare)

    def _step(self, known: ToolSet, draw: random.Random, taken: set[str]) -> SessionStep:
        name = draw_new_value("words", draw, taken, self.split)
        tool = draw.choice(known.names)
        arguments = draw_arguments(draw, taken, self.split)
        changing = draw.sample(["tool", *arguments], self.changes)
        before = draw_arguments(draw, taken, self.split)
        old = {key: before[key] for key in arguments if key in changing}
        return SessionStep(
            name, tool, arguments, other_tool(known.names, tool, draw) if "tool" in changing else "", old
        )

    def _facts(
        self, cell: Cell, step: SessionStep, depths: Sequence[float], name: str, draw: random.Random
    ) -> tuple[list[Fact], tuple[str, ...]]:
        """The facts about a step in the session, and the ids of those that hold in the end. An old value comes before
        the new one; at one depth the order of the facts decides."""
        facts, needed = [], []
        places = list(depths)
        draw.shuffle(places)
        for number, (key, depth) in enumerate(zip(("tool", *step.arguments), places, strict=True)):
            old = step.old_tool if key == "tool" else step.old_values.get(key)
            new = step.tool if key == "tool" else step.arguments[key]
            part, value = ("tool", {"tool": new}) if key == "tool" else ("argument", {"argument": key, "value": new})
            if old:
                before = {"tool": old} if key == "tool" else {"argument": key, "value": old}
                text = self.fill(part, step=step.name, **before)
                facts.append(Fact(f"{cell.key}#{name}.old{number}", text, depth * draw.random(), cell.length))
            text = self.fill(f"{part}_changed" if old else part, step=step.name, **value)
            facts.append(Fact(f"{cell.key}#{name}.{number}", text, depth, cell.length))
            needed.append(facts[-1].id)
        return facts, tuple(needed)

    def _ask(
        self, cell: Cell, step: SessionStep, others: Sequence[SessionStep], known: ToolSet, needed: tuple[str, ...]
    ) -> DraftQuestion:
        mistakes: dict[str, tuple[str, ...]] = {}
        if step.old_tool:
            mistakes[STALE_TOOL] = (step.old_tool,)
        if step.tool in known.near:
            mistakes[NEAR_MISS] = (known.near[step.tool],)
        if step.old_values:
            mistakes[STALE_VALUE] = tuple(map(str, step.old_values.values()))
        call = {"name": step.tool, "arguments": dict(step.arguments)}
        return DraftQuestion(
            cell=cell,
            text=self.fill("question", step=step.name),
            answer_prefix=self.fill("prefix"),
            targets=(json.dumps(call),),
            allowance=self.answer_tokens,
            scorers=("tool_calls", "tool_calls.tool"),
            facts=needed,
            distractors=tuple(str(value) for other in others for value in other.arguments.values()),
            labels={"operation": "tool changed" if step.old_tool else "tool as planned", "step": step.name},
            family="calls",
            mistakes=mistakes,
        )
