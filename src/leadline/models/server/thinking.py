"""Thinking output, split from the answer, where a server leaves both in one text."""

from __future__ import annotations

TAGS: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""How open models mark their thinking: Qwen and DeepSeek, generic, Mistral, Seed, Cohere."""


def split_thinking(text: str, *, opened: bool | None = False) -> tuple[str, str]:
    """(thinking, answer). `opened` says that the prompt already ended inside the thinking; None, that it may have.

    Output that stops inside the thinking has no answer: all of it is thinking.
    """
    start = text.lstrip()
    for begin, end in TAGS:
        if start.startswith(begin) or (opened is not False and end in text):
            thinking, _, answer = start.removeprefix(begin).partition(end)
            return thinking.strip(), answer.lstrip()
    return (text.strip(), "") if opened else ("", text)


def opens_thinking(text: str) -> bool:
    """Whether text that ends a prompt leaves the model inside its thinking."""
    return any(text.rfind(begin) > text.rfind(end) for begin, end in TAGS)
