"""A model with scripted answers, and minimal documents."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from leadline.core.answers import Answer, Completion, Failure, Sent
from leadline.core.contracts import ModelCard, Tokenizer
from leadline.core.types import Cell, Document, Frame, Probe, Question
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import open_tokenizer

Outcome = Completion | Failure
Script = Callable[[Probe, int], Outcome]
"""From a probe and the number of the attempt (from 1) to the outcome."""


class ScriptedModel:
    """Answers from its script, and logs which cell was asked when."""

    def __init__(self, script: Script, asked_per: Literal["probe", "document"] = "probe", seconds: float = 0.0) -> None:
        self.script = script
        self.asked_per: Literal["probe", "document"] = asked_per
        self.seconds = seconds
        self.card = ModelCard(name="scripted")
        self.tokenizer: Tokenizer = open_tokenizer("bytes")
        self.frame: Frame = completion_frame()
        self.asked: list[tuple[str, float]] = []
        self.calls: list[list[str]] = []
        self._guard = threading.Lock()

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        with self._guard:
            self.calls.append([p.cell.key for p in probes])
            self.asked.extend((p.cell.key, time.monotonic()) for p in probes)
            attempts = [sum(key == p.cell.key for key, _ in self.asked) for p in probes]
        if self.seconds:
            time.sleep(self.seconds)
        outcomes = [self.script(p, n) for p, n in zip(probes, attempts, strict=True)]
        return [Answer(Sent("completion", "none"), outcome, 0.01) for outcome in outcomes]

    def close(self) -> None:
        pass


def document_of(samples: int, length: int = 1024) -> Document:
    """A document with one probe for each of `samples` samples; later probes have longer cuts."""
    ids = np.arange(samples + 8, dtype=np.int32)
    probes = tuple(
        Probe(
            cell=Cell("niah", length, 0.5, n), question=Question("?", "", ("7",), 4, ("match.all",)), cut=n + 1,
            cut_characters=n + 1, user_suffix="?", suffix_ids=ids[:1], prompt_tokens=n + 2,
        )
        for n in range(samples)
    )  # fmt: skip
    return Document("d", "d", completion_frame(), "x" * (samples + 8), ids, 0, 0, (), probes)
