"""Real servers have no findings: llama.cpp with SmolLM2, started here, and any server named by LEADLINE_SERVER.

LEADLINE_SERVER is a model as for `leadline run`, such as openai:smollm2?base_url=http://127.0.0.1:8000/v1 of a vLLM.
"""

from __future__ import annotations

import os

import pytest

from leadline.core.registry import ModelName, provider
from leadline.features.doctor.checks import examine
from leadline.features.doctor.findings import CheckReport

pytestmark = pytest.mark.real


QUICK = ("tokenizer", "receipts", "template", "prefix", "max_tokens", "reasoning_parser", "model_name")
"""All twenty take many minutes on two cores: they are made with LEADLINE_SLOW=1."""


def checked(model: str) -> CheckReport:
    name = ModelName.parse(model)
    only = () if os.environ.get("LEADLINE_SLOW") else QUICK
    return examine(provider(name).open(name.name), longest=1024, only=only)


def assert_clean(found: CheckReport) -> None:
    assert not found.findings, [(r.check, r.evidence) for r in found.findings]
    skipped = {r.check: r.evidence for r in found.results if r.status == "not_made"}
    assert not skipped.keys() - {"prefix_cache", "max_tokens"}, skipped


def test_llama_cpp_with_a_small_model_has_no_findings() -> None:
    pytest.importorskip("xllamacpp")
    from support.llama_server import MODEL, LlamaServer, half_weights

    with LlamaServer(half_weights(), window=768) as server:
        assert_clean(checked(f"openai:{MODEL}?base_url={server.base_url}"))


@pytest.mark.skipif("LEADLINE_SERVER" not in os.environ, reason="no server is named")
def test_a_named_server_has_no_findings() -> None:
    assert_clean(checked(os.environ["LEADLINE_SERVER"]))
