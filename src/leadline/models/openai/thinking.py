"""How a server is told to think: on, off, a level of effort, or a budget of tokens.

    setting      vLLM                      SGLang               llama.cpp                 hosted
    on, off      enable_thinking           enable_thinking      enable_thinking           reasoning_effort none (off)
    low ...      reasoning_effort          reasoning_effort     reasoning_effort          reasoning_effort
    4096         thinking_token_budget     -                    thinking_budget_tokens    by host

`enable_thinking` and, where the template may show it, the effort go to the chat template (chat_template_kwargs). What a
server has no field for is an error, or for on and off a note: a setting that is not sent must not be in a table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from leadline.core.errors import UsageError
from leadline.models.openai.discovery import ServerKind

LEVELS = ("minimal", "low", "medium", "high", "xhigh")
MOST_BUDGET = 10_000_000
EFFORT_HOSTS = frozenset(
    {"api.openai.com", "openrouter.ai", "api.x.ai", "api.groq.com", "generativelanguage.googleapis.com"}
)
"""Hosted servers where reasoning_effort none switches thinking off."""


def checked_thinking(text: str) -> str:
    """`on`, `off`, a level or a number of tokens."""
    wanted = text.strip().lower()
    if wanted in ("on", "off", *LEVELS) or (wanted.isdecimal() and 1 <= int(wanted[:9]) <= MOST_BUDGET):
        return wanted
    raise UsageError(
        f"{text[:60]!r} is no way to think",
        where="thinking",
        fix=f"write on, off, {', '.join(LEVELS)}, or a budget of tokens such as 4096",
    )


@dataclass(frozen=True, slots=True)
class ThinkingFields:
    """What is sent for a setting: to the template, and beside the messages."""

    template: dict[str, Any] = field(default_factory=dict)
    request: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def thinking_fields(setting: str | None, kind: ServerKind, host: str, *, chat: bool) -> ThinkingFields:
    if setting is None:
        return ThinkingFields()
    if not chat:
        if setting in ("on", "off"):
            return ThinkingFields()  # as before: a plain text has no template
        raise _no_field(setting, "api=completions sends a plain text")
    if setting in ("on", "off"):
        return _switched(setting, kind, host)
    local = kind != "plain"
    if setting in LEVELS:
        template = {"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": setting}} if local else {}
        return ThinkingFields(template, {"reasoning_effort": setting})
    template = {"chat_template_kwargs": {"enable_thinking": True}} if local else {}
    return ThinkingFields(template, _budget_field(int(setting), kind, host))


def _switched(setting: str, kind: ServerKind, host: str) -> ThinkingFields:
    if kind != "plain":
        return ThinkingFields({"chat_template_kwargs": {"enable_thinking": setting == "on"}})
    if setting == "off" and host in EFFORT_HOSTS:
        return ThinkingFields(request={"reasoning_effort": "none"})
    note = f"thinking={setting} is not sent: this kind of server has no switch for it"
    return ThinkingFields(note=note)


def _budget_field(tokens: int, kind: ServerKind, host: str) -> dict[str, Any]:
    if kind == "vllm":
        return {"thinking_token_budget": tokens}
    if kind == "llamacpp":
        return {"thinking_budget_tokens": tokens}
    if kind == "plain" and host == "openrouter.ai":
        return {"reasoning": {"max_tokens": tokens}}
    if kind == "plain" and host == "api.anthropic.com":
        return {"thinking": {"type": "enabled", "budget_tokens": tokens}}
    if kind == "plain" and host == "generativelanguage.googleapis.com":
        return {"extra_body": {"google": {"thinking_config": {"thinking_budget": tokens}}}}
    raise _no_field(str(tokens), f"{'this' if kind == 'plain' else kind} server has no known field for a budget")


def _no_field(setting: str, why: str) -> UsageError:
    return UsageError(
        f"thinking={setting} cannot be sent: {why}",
        where="thinking",
        fix=f"use a level ({', '.join(LEVELS)}), or name the server's own field in extra={{...}}",
    )
