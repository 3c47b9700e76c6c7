"""Requests to other models than the tested one, such as judges, and the tokens that were paid for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Payment:
    """One or more requests of the same size to one model."""

    model: str
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    requests: int = 1
    """The tokens are those of all of them together."""
    is_estimated: bool = False
    """Whether the server gave no counts, so that the tokens are by ours."""
