"""Between Leadline's probes and Inspect's samples: messages with what grading needs, and back to an answer."""

from __future__ import annotations

from typing import Any

from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ContentReasoning

from leadline.core.answers import Answer, Failure, Outcome, Sent
from leadline.core.errors import UsageError
from leadline.features.harness_tasks.feeding import NextSample, iterate_texts
from leadline.features.harness_tasks.grading import Fields, completion, sample_fields

FINISHES = {"max_tokens": "length"}
"""Inspect's stop reasons by other names."""
MESSAGES = {"user": ChatMessageUser, "assistant": ChatMessageAssistant}


def inspect_sample(following: NextSample) -> Any:
    """The sample that asks a probe: its id is the key of the cell, as in records.jsonl."""
    document, probe = following.document, following.probe
    not_asked = {"not_asked": probe.not_asked.message} if probe.not_asked else {}
    return Sample(
        input=_messages(following),
        target=list(probe.question.targets),
        id=probe.cell.key,
        metadata={**sample_fields(document, probe), **not_asked},
    )


def _messages(following: NextSample) -> list[Any]:
    document, probe = following.document, following.probe
    turns = list(iterate_texts(document, probe))
    if document.tools or any(role not in MESSAGES for role, _ in turns):
        raise UsageError(
            f"{probe.cell.task} has tools, or turns of tools, which these samples do not carry",
            where=probe.cell.task,
            fix="measure it with `leadline run`",
        )
    return [MESSAGES[role](content=text) for role, text in turns]


def outcome_of(output: Any, error: str, fields: Fields) -> Outcome:
    """The outcome that a run would have recorded for Inspect's output of a model."""
    if error or output is None or output.error or not output.choices:
        return Failure("server", error or str(getattr(output, "error", "") or "no answer"))
    choice, usage = output.choices[0], output.usage
    if choice.stop_reason == "model_length" and not (usage and usage.output_tokens):
        return Failure("context_length", output.completion)
    counts: dict[str, Any] = {}
    if usage is not None:
        cached, written = usage.input_tokens_cache_read or 0, usage.input_tokens_cache_write or 0
        counts = {
            "prompt_tokens": usage.input_tokens + cached + written,
            "completion_tokens": usage.output_tokens,
            "cached_tokens": usage.input_tokens_cache_read,
            "thinking_tokens": usage.reasoning_tokens,
        }
    content = choice.message.content
    parts = [] if isinstance(content, str) else [part for part in content if isinstance(part, ContentReasoning)]
    return completion(
        output.completion,
        fields,
        finish=FINISHES.get(choice.stop_reason, choice.stop_reason),
        thinking="".join(part.reasoning for part in parts),
        model=output.model,
        **counts,
    )


def answer_of(sample: Any) -> Answer:
    """The answer in a finished sample of Inspect's log."""
    error = sample.error.message if sample.error is not None else ""
    seconds = float(sample.working_time or sample.total_time or 0.0)
    sent = Sent(form="chat", prefix="prefill" if sample.metadata["answer_prefix"] else "none")
    return Answer(sent, outcome_of(sample.output, error, sample.metadata), seconds)


def prompt_of(messages: list[Any]) -> str:
    """The user's turn among the messages that were sent; empty for a conversation, which has several."""
    turns = [message.text for message in messages if message.role == "user"]
    return turns[0] if len(turns) == 1 else ""
