"""Log-probabilities of both sides: places, buckets, what a planted change shows, and the command end to end."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from leadline.core.types import Cell, NextToken
from leadline.features.certify.decide import speed_figures
from leadline.features.certify.drift import (
    PROMPTS_PER_LENGTH,
    PromptDrift,
    SideDrift,
    bucket_of,
    cache_drift,
    chosen_cells,
    compare_drift,
    drift_file,
    read_drift,
    spread_cuts,
)
from support.commands import Say


def side(noise: float, past: int = 0, seed: int = 0) -> SideDrift:
    """Twelve prompts of 4,096 tokens, with normal noise on the logits of ten tokens at places from `past` on."""
    rng, prompts = np.random.default_rng(9), []
    own = np.random.default_rng([seed, 17])
    for number in range(12):
        cuts, after = tuple(range(100, 4100, 250)), []
        for cut in cuts:
            logits = rng.normal(0, 2, 10)
            logits = logits + (own.normal(0, noise, 10) if cut >= past else 0)
            logprobs = logits - math.log(np.exp(logits).sum())
            after.append(NextToken({str(n): float(p) for n, p in enumerate(logprobs)}, float(logprobs[0])))
        prompts.append(PromptDrift(f"c{number}", 4096, 3850, cuts, tuple(after), tuple(after), tuple(after)))
    return SideDrift(tuple(prompts))


def test_the_same_side_twice_does_not_drift() -> None:
    drift = compare_drift(side(0), side(0))
    assert drift.problem == ""
    assert (drift.overall.kl.value, drift.overall.same_top.value, drift.overall.nll.value) == (0.0, 1.0, 0.0)
    assert [bucket.name for bucket in drift.buckets] == [
        "tokens 0k to 1k", "tokens 1k to 2k", "tokens 2k to 4k", "answer token 1",
    ]  # fmt: skip


def test_damage_past_a_position_is_seen_in_its_buckets_and_in_no_other() -> None:
    drift = compare_drift(side(0), side(0.5, past=2048, seed=1))
    by_name = {bucket.name: bucket for bucket in drift.buckets}
    assert by_name["tokens 0k to 1k"].kl.value == by_name["tokens 1k to 2k"].kl.value == 0.0
    far = by_name["tokens 2k to 4k"].kl
    assert far.interval is not None
    assert far.interval.low > 0.02


def test_sides_without_log_probabilities_say_why() -> None:
    silent = SideDrift((PromptDrift("c0", 4096, 4080, (1,), problem="the server lists no candidates"),))
    drift = compare_drift(side(0), silent)
    assert drift.problem == "candidate: the server lists no candidates"
    assert drift.overall.kl.value is None


def test_a_cache_is_compared_with_fresh_readings_of_its_own_side() -> None:
    found = cache_drift("base", side(0))
    assert found is not None
    assert found.summary.kl.value == 0.0
    assert cache_drift("base", SideDrift(())) is None


def test_places_are_spread_and_the_same_for_both_sides() -> None:
    cuts = spread_cuts(4000, "a")
    assert cuts == spread_cuts(4000, "a") == sorted(cuts)
    assert cuts != spread_cuts(4000, "b")
    assert len(cuts) == 12
    assert cuts[0] < 400
    assert cuts[-1] > 3600
    assert spread_cuts(2, "a") == [1]


@pytest.mark.parametrize(("cut", "name"), [
    (0, "tokens 0k to 1k"), (1023, "tokens 0k to 1k"), (1024, "tokens 1k to 2k"), (70_000, "tokens 64k to 128k"),
    (100_000, "answer token 1"), (100_001, "answer tokens 2 to 4"), (100_011, "answer tokens from 5"),
])  # fmt: skip
def test_positions_have_buckets(cut: int, name: str) -> None:
    assert bucket_of(cut, 100_000) == name


def test_a_few_prompts_of_every_length_are_chosen() -> None:
    cells = [Cell(t, n, d, s) for t in "ab" for n in (1024, 2048) for d in (0.0, 0.5, 1.0) for s in range(3)]
    chosen = chosen_cells(cells, 0)
    assert [cell.length for cell in chosen] == [1024] * PROMPTS_PER_LENGTH + [2048] * PROMPTS_PER_LENGTH
    assert {cell.sample for cell in chosen} == {0}


def test_a_torn_line_of_a_stopped_command_is_left_out(tmp_path: Path) -> None:
    drift_file(tmp_path / "base").write_text('{"cell":"c","length":1,"prompt_tokens":1,"cuts":[1]}\n{"cell":"d","le')
    assert [prompt.cell for prompt in read_drift(tmp_path / "base").prompts] == ["c"]


def test_speeds_are_ratios_of_medians_with_intervals() -> None:
    base = [(1024, s) for s in (1.0, 1.1, 0.9, 1.0)]
    slower = [(n, 2 * s) for n, s in base]
    first, rate = speed_figures((base, base), (slower, [(1024, 0.5)]))
    assert first.name == "time to first token at 1k"
    assert first.value == pytest.approx(2.0)
    assert first.interval is not None
    assert 1.6 < first.interval.low <= 2.0 <= first.interval.high < 2.5
    assert rate.name == "decode rate at 1k"
    assert rate.interval is None, "one prompt has no interval"


@pytest.mark.slow
def test_the_command_compares_log_probabilities_of_models_in_process(say: Say, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from support.tiny_models import model_folder

    folder = model_folder(tmp_path / "tiny")
    words = ["certify", f"hf:{folder}?device=cpu&dtype=float32", f"hf:{folder}?device=cpu&dtype=bfloat16", "--task",
             "niah", "--lengths", "300", "--depths", "2", "--samples", "2", "--out", str(tmp_path / "c"), "--json",
             "--no-repeat"]  # fmt: skip
    result = say(*words)
    assert result.code in (0, 1, 2), result.err
    found = json.loads(result.out)
    assert found["drift"]["problem"] == ""
    assert 0 < found["figures"]["mean KLD"]["value"] < 0.1, "bfloat16 is near and not the same"
    assert found["figures"]["same top-1"]["interval"] is not None
    assert {name.rpartition(" at ")[0] for name in found["candidate_over_base"]} == {
        "time to first token", "decode rate",
    }  # fmt: skip
    assert found["cached_against_fresh"][0]["summary"]["kl"]["value"] < 1e-6
    assert found["deterministic_mode"]["base"].startswith("in this process")
    record = json.loads((tmp_path / "c" / "base" / "records.jsonl").read_text().splitlines()[0])
    assert record["outcome"]["margin"] > 0
    assert "Log-probabilities by position" in (tmp_path / "c" / "certify.html").read_text()
