"""The limits of batches by provider, in one table, each with its source. docs/batch.md shows the same."""

from __future__ import annotations

from leadline.core.batches import BatchLimits

_LIMITS = (
    BatchLimits(
        provider="openai",
        requests=50_000,
        bytes=200_000_000,
        hours=24,
        source="OpenAI's API reference, POST /v1/batches, read 2026-08-21",
    ),
    BatchLimits(
        provider="anthropic",
        requests=100_000,
        bytes=256_000_000,
        hours=24,
        source="Anthropic's documentation of message batches, read 2026-08-07",
    ),
    BatchLimits(
        provider="gemini",
        requests=100_000,
        bytes=200_000_000,
        hours=24,
        source="Google's documentation of the Batch API, read 2026-08-21: files up to 2 GB; it names no number",
    ),
)

BATCH_LIMITS = {limits.provider: limits for limits in _LIMITS}
