"""A model that needs no torch and dies when it is told to, for copies of it in other processes.

It does as the files in its folder say: `kill` takes the next one that is asked, `plague` every one; `sick` keeps those
from opening that are not open yet, and `other` makes them other than the rest. `hold-NODE` makes those on that node of
a Ray cluster wait for ever, after writing `held`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from leadline.core.answers import Answer, Completion, Sent
from leadline.core.contracts import ModelCard, Tokenizer
from leadline.core.errors import RunStopped, SourceError
from leadline.core.types import Continuation, Document, Frame, Probe, TokenNLL
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import open_tokenizer

if TYPE_CHECKING:
    from leadline.core.types import Ids


class MortalModel:
    """Answers everything rightly and writes down, by its process, what it was asked."""

    def __init__(self, folder: Path) -> None:
        if (folder / "sick").exists():
            raise SourceError("this one does not open", where=str(folder), fix="cure it")
        self._folder = folder
        dtype = "bfloat16" if _taken(folder / "other") else "float32"
        self.card = ModelCard(name="mortal", fingerprints={"dtype": dtype}, notes=("a test",))
        self.tokenizer: Tokenizer = open_tokenizer("bytes")
        self.frame: Frame = completion_frame()
        self.plain: Frame = completion_frame()
        self.asked_per: Literal["probe", "document"] = "document"

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        self._live()
        with (self._folder / f"asked-{os.getpid()}").open("a") as log:
            log.write(" ".join(probe.cell.key.replace(" ", "_") for probe in probes) + "\n")
        sent = Sent(form="ids", prefix="none")
        return [
            Answer(sent, Completion(p.question.targets[0], finish="stop", prompt_tokens=p.prompt_tokens), 0.01)
            for p in probes
        ]

    def nll(
        self, ids: Ids, continuations: Sequence[Continuation] = (), spans: Sequence[tuple[int, int]] = ()
    ) -> TokenNLL:
        self._live()
        return TokenNLL((), tuple(np.full(stop - start, float(ids.sum())) for start, stop in spans))

    def forecast(
        self, documents: Iterable[Sequence[tuple[int, int, int]]], kept: Iterable[int] = ()
    ) -> tuple[str, ...]:
        return (f"{len(list(documents))} documents",)

    def close(self) -> None:
        pass

    def _live(self) -> None:
        if list(self._folder.glob("hold-*")):
            import ray

            while (self._folder / f"hold-{ray.get_runtime_context().get_node_id()}").exists():
                (self._folder / "held").touch()
                time.sleep(0.2)
        if (self._folder / "plague").exists() or _taken(self._folder / "kill"):
            os._exit(1)
        if _taken(self._folder / "lost"):
            raise RunStopped("the GPU stopped working")
        if (self._folder / "confused").exists():
            raise RuntimeError("a defect of the model")


def _taken(file: Path) -> bool:
    """Whether the file was there for this process: only one can remove it."""
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    return True
