"""A certification end to end with real servers: llama.cpp with SmolLM2, f16 against q4_0 keys and values."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from support.commands import Say
from support.served_process import free_port

pytestmark = pytest.mark.real


def test_keys_and_values_of_four_bits_are_certified_against_sixteen(say: Say, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    from support.llama_server import command, half_weights

    weights = half_weights()
    base = command(weights, free_port(), "--window", "512")
    candidate = command(weights, free_port(), "--window", "512", "--cache-type", "q4_0")
    result = say("certify", "--serve-base", base, "--serve-candidate", candidate, "--task", "niah", "--lengths", "256",
                 "--depths", "2", "--samples", "2", "--workers", "1", "--out", str(tmp_path), "--json")  # fmt: skip
    assert result.code in (0, 1, 2), result.err
    found = json.loads(result.out)
    drift = found["drift"]["overall"]
    assert found["drift"]["problem"] == ""
    assert drift["kl"]["positions"] > 20
    assert 0 < drift["kl"]["value"] < math.inf, "a cache of four bits is not the same"
    assert {cache["role"] for cache in found["cached_against_fresh"]} == {"base", "candidate"}
    assert {flips["role"]: flips["flipped"] for flips in found["asked_again"]} == {"base": 0, "candidate": 0}
    assert any(name.startswith("time to first token") for name in found["candidate_over_base"])
    for role in ("base", "candidate"):
        assert len((tmp_path / role / "records.jsonl").read_text().splitlines()) == 4
        assert "listening on" in (tmp_path / f"{role}-server.log").read_text()
    assert "q4_0" in (tmp_path / "certify.html").read_text()
