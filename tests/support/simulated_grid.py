"""Needle grids and hand-made documents for tests of simulated models."""

from __future__ import annotations

from collections.abc import Sequence

from leadline.core.answers import Completion
from leadline.core.registry import ModelName, provider
from leadline.core.types import Cell, Document, Probe, Question
from leadline.models.sim.model import SimulatedModel
from leadline.scorers.match import ALL
from leadline.tasks.niah import NeedleTask
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import WhitespaceTokenizer
from support.fitting import fit

WORDS = WhitespaceTokenizer()


def open_simulated(text: str) -> SimulatedModel:
    name = ModelName.parse(text)
    model = provider(name).open(name.name)
    assert isinstance(model, SimulatedModel)
    return model


def needle_documents(
    task: NeedleTask, lengths: Sequence[int], depths: Sequence[float], samples: int, *, seed: int = 0
) -> list[Document]:
    """One document a cell, longest first, as a run builds them."""
    cells = [Cell("niah", n, d, s) for n in sorted(lengths, reverse=True) for d in depths for s in range(samples)]
    return [fit(task.draft([cell], seed=seed), WORDS, completion_frame()) for cell in cells]


def text_document(body: str, question: str, *, targets: tuple[str, ...], depth: float | None = None) -> Document:
    """A document written by hand, with one question and no planted facts."""
    head = "Read the text.\n\n"
    ids, closing = WORDS.encode(head + body), WORDS.encode(f"\n\n{question} ")
    probe = Probe(
        cell=Cell("hand", len(ids) + len(closing) + 64, depth, 0),
        cut=len(ids),
        cut_characters=len(head + body),
        user_suffix=f"\n\n{question} ",
        suffix_ids=closing,
        prompt_tokens=len(ids) + len(closing),
        question=Question(question, "", targets, 64, ("match.all",)),
    )
    return Document(
        id="hand", cluster="hand", frame=completion_frame(), text=head + body, tokens=ids, body_start=3,
        body_start_characters=len(head), facts=(), probes=(probe,),
    )  # fmt: skip


def reply(model: SimulatedModel, document: Document, probe: Probe | None = None) -> Completion:
    outcome = model.answer(document, [probe or document.probes[0]])[0].outcome
    assert isinstance(outcome, Completion)
    return outcome


def scored(model: SimulatedModel, document: Document) -> float:
    return ALL.score(document.probes[0].question, reply(model, document)).value
