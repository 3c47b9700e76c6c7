"""Runs with known truth: records drawn from a known probability surface, written as a run folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from leadline.core.answers import Completion, Failure, Sent
from leadline.core.records import FailureClass, PlantedRecord, Receipt, Record, Score
from leadline.core.seeds import digest, rng
from leadline.core.types import Cell, Question, Reading
from leadline.results.run import RecordKind, planned_grid
from leadline.store.manifest import Manifest, session
from leadline.store.runs import open_run

Surface = Callable[[int, float], float]
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
DEPTHS = tuple(i / 10 for i in range(11))
NOON = 1_763_208_000.0  # 2025-11-15 12:00 UTC


def cliff(length: int, depth: float) -> float:
    """Everything up to 32k, nothing after."""
    return 0.98 if length <= 32768 else 0.02


def lost_in_the_middle(length: int, depth: float) -> float:
    """A U over depth that deepens with length."""
    reach = math.log2(length / 1024) / 7
    return 0.99 - 0.85 * reach * (1 - 4 * (depth - 0.5) ** 2)


def decay(length: int, depth: float) -> float:
    """Smooth loss over length, halved at 32k."""
    return 1 / (1 + math.exp(1.6 * (math.log2(length) - 15)))


def perfect(length: int, depth: float) -> float:
    return 1.0


def planted_record(cell: Cell, chance: float, *, reading: Reading = "fresh", model: str = "sim:planted") -> Record:
    """One record whose answer is right with the given chance. Wrong answers fall into several classes."""
    draw = rng("planted", model, cell.task, cell.length, cell.depth, cell.sample)
    value = str(draw.randrange(10**6, 10**7))
    right = draw.random() < chance
    text, label = f" {value}.", "correct"
    if not right:
        text, label = draw.choice(
            [
                (f" {draw.randrange(10**6, 10**7)}", "distractor"),
                (" I could not find that number in the text.", "not_found"),
                ("", "empty"),
                (" The wind was steady that day and nobody", "cut_off"),
            ]
        )
    depth = 0.5 if cell.depth is None else cell.depth
    body = cell.length - 180
    start = int(depth * (body - 24))
    document = f"{cell.task}-{cell.length}-{cell.sample}"
    if reading == "fresh":
        document += f"-{depth:.2f}"
    return Record(
        cell=cell,
        reading=reading,
        document=document,
        cluster=document,
        model=model,
        question=Question(
            f"What is the number of the lighthouse {draw.randrange(1000)}?",
            "The number is",
            (value,),
            32,
            ("match.all",),
        ),
        facts=(PlantedRecord("needle", start, start + 24, depth, start / max(1, body - 24)),),
        body_tokens=body,
        prompt_tokens=cell.length - 32,
        sent=Sent("ids", "prefill", digest="0123456789abcdef", decoding={"temperature": 0}),
        outcome=Completion(text, "stop", prompt_tokens=cell.length - 32, completion_tokens=len(text) // 4 + 1),
        receipt=Receipt(cell.length - 32, cell.length - 32),
        scores={"match.all": Score(float(right), text.strip())},
        failure_class=_class(label),
        attempts=1,
        started=NOON + cell.sample,
        seconds=cell.length / 20_000,
    )


def failed_record(cell: Cell, *, model: str = "sim:planted") -> Record:
    record = planted_record(cell, 0.0, model=model)
    return msgspec.structs.replace(
        record,
        outcome=Failure("timeout", "no answer within 600 s", transient=True),
        receipt=Receipt(record.prompt_tokens, None),
        scores={},
        failure_class="error",
        attempts=6,
    )


def _class(label: str) -> FailureClass:
    found: FailureClass = msgspec.convert(label, FailureClass)
    return found


def planted_records(
    surface: Surface,
    *,
    tasks: Sequence[str] = ("niah",),
    lengths: Sequence[int] = LENGTHS,
    depths: Sequence[float | None] = DEPTHS,
    samples: int = 3,
    reading: Reading = "fresh",
    model: str = "sim:planted",
) -> Iterator[Record]:
    for task in tasks:
        for length in lengths:
            for depth in depths:
                for sample in range(samples):
                    chance = surface(length, 0.5 if depth is None else depth)
                    yield planted_record(Cell(task, length, depth, sample), chance, reading=reading, model=model)


def write_run(
    folder: Path,
    records: Sequence[Record],
    *,
    window: int | None = 131072,
    samples: int = 3,
    about: Mapping[str, dict[str, Any]] | None = None,
    name: str = "",
) -> Path:
    """A finished run folder holding these records, planned as the full grid they span.

    `about` adds fields to the manifest's entry of a task, `name` is the model's name in a list of models.
    """
    spec = {
        "model": records[0].model,
        "tasks": [{"name": t, "options": {}, "label": ""} for t in dict.fromkeys(r.cell.task for r in records)],
        "lengths": sorted({r.cell.length for r in records}),
        "depths": sorted({r.cell.depth for r in records if r.cell.depth is not None}),
        "samples": samples,
        "reading": records[0].reading,
        "seed": 0,
    }
    deep = {r.cell.task: r.cell.depth is not None for r in records}
    manifest = Manifest(
        name=name,
        digest=digest(spec),
        spec=spec,
        planned=len(records),
        fingerprints={"tokenizer": "whitespace", "sources.prose": "5f1d"},
        model={"name": records[0].model.partition(":")[2], "window": window, "notes": []},
        frame={"form": "completion", "prefill": True},
        tasks={
            t: {"name": t, "version": "1", "category": "retrieval", "has_depth": d, **(about or {}).get(t, {})}
            for t, d in deep.items()
        },
        created="2025-11-15T12:00:00+00:00",
        sessions=(session(["leadline", "run", "niah", "--model", records[0].model]),),
    )
    kinds: tuple[RecordKind, ...] = ("answer", "no_context", "logprob")
    planned = sum(sum(planned_grid(manifest, kind).values()) for kind in kinds)
    manifest = msgspec.structs.replace(manifest, planned=planned)
    folder.mkdir(parents=True, exist_ok=True)
    with open_run(folder, manifest) as run:
        for record in records:
            run.append(record)
    return folder
