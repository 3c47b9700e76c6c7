"""Small documents for tests of server models, in the model's own frame and tokenizer."""

from __future__ import annotations

from leadline.core.contracts import Model
from leadline.core.registry import ModelName, provider
from leadline.core.types import Cell, Document, Probe, Question
from leadline.models.openai.provider import OpenAIModel

NEEDLE = "The number kept for the old lighthouse is 4711321."


def open_model(base_url: str, **options: object) -> OpenAIModel:
    """`openai:fake` with options, as the command line would open it."""
    query = "&".join(
        f"{k}={v}" for k, v in {"tokenizer": "bytes", "base_url": base_url, "timeout": 20, **options}.items() if v != ""
    )
    name = ModelName.parse(f"openai:fake?{query}")
    model = provider(name).open(name.name)
    assert isinstance(model, OpenAIModel)
    return model


def document_for(
    model: Model, *, sample: int = 0, filler: str = "Nothing happened here. ", prefix: str = "The number is"
) -> tuple[Document, Probe]:
    """One needle among filler, and the probe that asks for it. Each sample is another text."""
    frame, tokenizer = model.frame, model.tokenizer
    text = f"{frame.before}Remember the numbers ({sample}). {filler}{NEEDLE} {filler}"
    question = "\nWhich number is it? "
    tail = question if frame.prefill else question + prefix
    closing = tail + frame.after + (prefix if frame.prefill else "")
    ids, whole = tokenizer.encode(text), tokenizer.encode(text + closing)
    probe = Probe(
        cell=Cell("niah", len(whole) + frame.extra_tokens + 16, 0.5, sample),
        question=Question(question, prefix, ("4711321",), 16, ("match.all",)),
        cut=len(ids),
        cut_characters=len(text),
        user_suffix=tail,
        suffix_ids=whole[len(ids) :],
        prompt_tokens=len(whole) + frame.extra_tokens,
    )
    document = Document(f"niah/{sample}", f"niah/{sample}", frame, text, ids, 0, len(frame.before), (), (probe,))
    return document, probe
