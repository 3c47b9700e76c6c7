"""OpenAI's own GraphWalks data (`openai/graphwalks`): its prompts as they are, its answers, its score.

A row has `prompt`, `answer` or `answer_nodes` (a list of nodes, or JSON text of one) and `problem_type`. A sample has
the length it has: the length of a cell is the limit, and samples that are longer in the tokenizer of the tested model
are left out and counted. Depths of the walk and answers of `parents` were repaired in February 2026; the digest of the
files is in the manifest, so that both versions are never mixed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from leadline.core.contracts import Origin, Task
from leadline.core.drafts import Draft, Question
from leadline.core.errors import SourceError
from leadline.core.files import parse_json
from leadline.core.seeds import bulk_rng
from leadline.core.types import Cell, document_name
from leadline.store.row_files import DataRow, data_files, digest_of, read_rows
from leadline.tasks.graphwalks import FINAL_ANSWER, SCORERS
from leadline.text.downloads import find_data

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


@dataclass(frozen=True, slots=True)
class WalkFile:
    name: str
    digest: str
    samples: tuple[WalkSample, ...]


@cache
def open_graphwalks(place: Path, kind: str) -> WalkFile:
    files = data_files(place)
    found = [_sample(row, f"{file.stem}/{n}") for file in files for n, row in enumerate(read_rows(file))]
    found = [sample for sample in found if kind in ("all", sample.kind)]
    if not found:
        raise SourceError(f"there is no sample of the type {kind}", where=str(place))
    return WalkFile(f"graphwalks ({place.name})", digest_of(files), tuple(found))


def _sample(row: DataRow, name: str) -> WalkSample:
    given: Any = row.value.get("answer_nodes", row.value.get("answer"))
    nodes: Any = parse_json(given, row.where) if isinstance(given, str) else given
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        raise row.error("answer_nodes is not a list of nodes")
    return WalkSample(name, row.text("prompt"), tuple(nodes), row.text("problem_type"))


class GraphWalksDataset(Task):
    """OpenAI's GraphWalks data (MIT licence): breadth-first search and parents on graphs as published."""

    version: ClassVar[str] = "1"
    category: ClassVar[str] = "published"

    data: str = Field("graphwalks", description="a Parquet or JSON lines file, a folder of them, or `sources pull`")
    kind: Literal["all", "bfs", "parents"] = Field("all", description="only samples of this type")
    answer_tokens: int = Field(2048, ge=1, description="tokens for the answer; published runs set no limit")

    @property
    def has_depth(self) -> bool:
        return False

    def opened(self) -> WalkFile:
        return open_graphwalks(find_data(self.data, folders=True), self.kind)

    def sources(self) -> Sequence[Origin]:
        return (self.opened(),)

    def most_samples(self) -> int:
        return len(self.opened().samples)

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        (cell,) = cells
        file = self.opened()
        # A fixed random order, as for every published benchmark.
        sample = file.samples[int(bulk_rng("published", file.name).permutation(len(file.samples))[cell.sample])]
        return Draft(
            id=document_name(cells),
            cluster=document_name(cells),
            head=sample.prompt,
            filler=None,
            facts=(),
            questions=(
                Question(
                    cell=cell,
                    text="",
                    answer_prefix="",
                    targets=sample.nodes,
                    allowance=self.answer_tokens,
                    scorers=SCORERS,
                    labels={
                        "sample_id": sample.id,
                        "dataset": "graphwalks",
                        "operation": sample.operation,
                        "reference": json.dumps(sample.nodes),
                    },
                    family="walks",
                    answer_form=FINAL_ANSWER,
                    fixed_allowance=True,
                ),
            ),
            overlong="drop",
        )
