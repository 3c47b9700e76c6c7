"""Log-probability metrics: by hand on rules with known NLLs, and through whole runs."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from leadline.core.answers import Measurement
from leadline.core.errors import LengthError, UsageError
from leadline.core.lengths import parse_depths
from leadline.core.records import Record
from leadline.core.spec import make_spec
from leadline.features.logprobs.metrics import (
    gain_numbers,
    key_numbers,
    key_tokens,
    loss_numbers,
    needle_numbers,
    place_anchors,
)
from leadline.results.run import load_run
from leadline.run.measure import measure, plan
from leadline.stats.logprobs import by_distance, by_length, estimate, ratio_interval
from leadline.stats.observations import observations
from leadline.store.export import row
from leadline.store.manifest import read_manifest
from leadline.store.runs import read_records
from support.logprob_model import RuleLogprobModel, remembers, spec, use


def nats(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def numbers(folder: Path) -> dict[str, dict[str, float]]:
    return {r.cell.key: r.outcome.numbers for r in read_records(folder) if isinstance(r.outcome, Measurement)}


# --- by hand ------------------------------------------------------------------------------------


def test_the_worked_example_has_a_gain_of_two_point_one() -> None:
    found = gain_numbers(nats(1.0, 1.2), nats(3.0, 3.4), utf8=10)
    assert found["retrieval_gain"] == pytest.approx(3.2 - 1.1)
    assert found["retrieval_gain_bits"] == pytest.approx((6.4 - 2.2) / math.log(2) / 10)


def test_losses_of_eight_tokens_by_hand() -> None:
    found = loss_numbers(nats(4, 2, 3, 3, 3, 3, 1, 5), utf8=16, tail=0.25)
    assert found["mean_nll"] == 3
    assert (found["head_loss"], found["tail_loss"], found["tail_vs_head"]) == (3, 3, 0)
    assert found["mean_nll_bits"] == pytest.approx(24 / math.log(2) / 16)


def test_key_tokens_need_both_a_fall_and_a_low_loss() -> None:
    short, whole = nats(5.0, 5.0, 2.1, 4.1, 9.0), nats(1.0, 3.0, 0.2, 2.0, 1.9)
    assert key_tokens(whole, short).tolist() == [0, 4]  # 5 -> 3 is no low loss, 2.1 -> 0.2 falls by 1.9, 2.0 is not < 2
    assert key_numbers(whole[[0, 4]]) == {"key_tokens": 2, "longppl": pytest.approx(1.45)}
    assert key_numbers(whole[:0]) == {"key_tokens": 0}


def test_needle_gain_is_one_when_the_document_helps_as_much_as_the_fact_alone() -> None:
    assert needle_numbers(nats(0.5), nats(4.5), nats(0.5))["needle_gain"] == 1
    assert needle_numbers(nats(4.5), nats(4.5), nats(0.5))["needle_gain"] == 0
    assert "needle_gain" not in needle_numbers(nats(1.0), nats(2.0), nats(2.0))


def test_needle_chance_is_the_geometric_mean_of_the_chances_of_the_values_tokens() -> None:
    found = needle_numbers(-np.log([0.5, 0.125]), nats(4.0, 4.0), nats(0.5, 0.5))
    assert found["needle_chance"] == pytest.approx(0.25)


# --- anchors ------------------------------------------------------------------------------------


def test_two_anchors_are_at_the_ends_of_the_range_of_the_definition() -> None:
    room = 8192 - 48
    found = place_anchors(np.arange(8192, dtype=np.int32), (0.1, 0.6), query=24, answer=24)
    assert [a.at for a in found] == [int(0.1 * room), int(0.6 * room)]
    assert not any(a.ambiguous for a in found)


def test_an_anchor_whose_query_occurs_twice_moves_forward_and_the_last_one_backward() -> None:
    ids = np.arange(400, dtype=np.int32)
    ids[36:60] = ids[336:360] = 7  # 24 equal tokens in two places, and runs of them just before and after
    first, last = place_anchors(ids, (0.1, 0.6), query=4, answer=4)
    assert first.at == 57  # the first query that holds something besides the repeated token: 7 7 7 60
    assert not first.ambiguous
    assert last.at == int(392 * 0.6)


def test_a_document_that_says_one_thing_over_and_over_is_marked_ambiguous() -> None:
    found = place_anchors(np.full(400, 7, np.int32), (0.1, 0.6), query=24, answer=24)
    assert [a.ambiguous for a in found] == [True, True]
    assert [a.at for a in found] == [35, 211]


def test_a_document_too_short_for_a_query_and_an_answer_is_an_error() -> None:
    with pytest.raises(LengthError):
        place_anchors(np.arange(48, dtype=np.int32), (0.5,), query=24, answer=24)


def test_a_number_of_anchors_between_two_depths_is_one_word() -> None:
    assert parse_depths("0.1..0.6:6") == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    with pytest.raises(UsageError):
        parse_depths("0.1..2:3")


# --- runs ---------------------------------------------------------------------------------------


def test_a_model_that_remembers_gains_exactly_what_its_rule_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, RuleLogprobModel(remembers))
    texts = [" ".join(f"w{document}.{n}" for n in range(300)) for document in range(3)]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    measure(spec(options={"documents": str(tmp_path / "texts.json")}), tmp_path / "run")
    found = estimate(read_records(tmp_path / "run"), "retrieval_gain")
    # No word comes twice: alone every token costs 3.2, after the document 1.1.
    assert found.mean == pytest.approx(3.2 - 1.1)
    assert (found.n, found.n_clusters) == (6, 3)
    one = next(read_records(tmp_path / "run"))
    assert one.failure_class == "measured"
    assert set(one.scores) == {"retrieval_gain", "retrieval_nll"}
    assert one.facts[0].end - one.facts[0].start == 48
    assert len(one.question.text.split()) == len(one.question.targets[0].split()) == 24
    assert one.sent.notes == ("by a rule",)


def test_a_model_that_cannot_see_the_document_gains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, RuleLogprobModel(lambda before, token: 1 + (before[-1] + token) % 97 / 10))
    measure(spec(samples=5), tmp_path / "run")
    found = estimate(read_records(tmp_path / "run"), "retrieval_gain")
    assert found.mean == 0
    assert found.interval.holds(0)


@pytest.mark.parametrize("anchors", [2, 32])
def test_a_document_is_read_once_for_any_number_of_anchors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anchors: int
) -> None:
    model = RuleLogprobModel(lambda before, token: 1.0)
    use(monkeypatch, model)
    measure(spec(depths=f"0.1..0.6:{anchors}"), tmp_path / "run")
    assert model.calls == [(256, 2 * anchors, 0)] * 3


def test_all_metrics_of_plain_documents_come_from_one_reading_and_the_short_contexts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = RuleLogprobModel(lambda before, token: 1.0)
    use(monkeypatch, model)
    measure(spec("proxies", samples=1, options={"short": 64, "step": 32}), tmp_path / "run")
    assert model.calls[0] == (256, 4, 1)
    assert model.calls[1:] == [(96, 0, 1)] * 5


def test_nested_reading_gives_the_numbers_of_fresh_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = RuleLogprobModel(remembers)
    use(monkeypatch, model)
    grid = {"lengths": "128,256", "options": {"short": 64, "step": 32}}
    measure(spec("proxies", **grid), tmp_path / "fresh")
    before = len(model.calls)
    measure(spec("proxies", **grid, reading="nested"), tmp_path / "nested")
    fresh, nested = numbers(tmp_path / "fresh"), numbers(tmp_path / "nested")
    assert fresh.keys() == nested.keys()
    for key in fresh:
        assert fresh[key] == pytest.approx(nested[key])
    assert len(model.calls) - before < before


def test_the_beginning_of_text_stands_once_before_both_conditions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beginnings: set[int] = set()

    def rule(before: list[int], token: int) -> float:
        beginnings.add(before[0])
        return 1.0 + (before.count(before[0]) - 1)

    model = RuleLogprobModel(rule, beginning="<s> ")
    use(monkeypatch, model)
    measure(spec("proxies", samples=1), tmp_path / "run")
    assert beginnings == set(model.tokenizer.encode("<s>").tolist())
    found = numbers(tmp_path / "run")["proxies/256/0.1000/0"]
    assert found["scored_tokens"] == 256  # with something before it, the first token is scored too
    assert found["mean_nll"] == 1
    manifest = read_manifest(tmp_path / "run")
    assert manifest.tasks["proxies"]["choices"]["beginning of text"] == "'<s> '"


def test_perplexity_is_that_of_the_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, RuleLogprobModel(lambda before, token: 3.0 if len(before) < 64 else 2.0))
    measure(spec("mean_nll", lengths="128,256", options={"metrics": ["mean_nll", "tail_vs_head"]}), tmp_path / "run")
    found = by_length(read_records(tmp_path / "run"), "mean_nll")
    assert found[128].mean == pytest.approx((63 * 3 + 64 * 2) / 127)
    assert found[256].mean == pytest.approx((63 * 3 + 192 * 2) / 255)
    assert by_length(read_records(tmp_path / "run"), "tail_vs_head")[256].mean == pytest.approx(-1.0)


def test_longppl_keeps_the_tokens_that_need_the_far_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(before: list[int], token: int) -> float:
        if token % 7:
            return 4.0
        return 0.5 if len(before) >= 96 else 5.0  # short contexts have 64 to 95 tokens

    use(monkeypatch, RuleLogprobModel(rule))
    options = {"short": 64, "step": 32}
    measure(spec("longppl", options=options), tmp_path / "own")
    for record in read_records(tmp_path / "own"):
        assert isinstance(record.outcome, Measurement)
        assert record.outcome.numbers["longppl"] == 0.5
        assert record.outcome.numbers["key_tokens"] == len(record.outcome.char_spans) > 5

    blind = RuleLogprobModel(lambda before, token: 2.5)
    use(monkeypatch, blind)
    measure(spec("longppl", options=options), tmp_path / "without")
    assert all("longppl" not in n for n in numbers(tmp_path / "without").values())
    assert math.isnan(estimate(read_records(tmp_path / "without"), "longppl").mean)

    measure(spec("longppl", options={**options, "evaluator": str(tmp_path / "own")}), tmp_path / "evaluated")
    assert estimate(read_records(tmp_path / "evaluated"), "longppl").mean == 2.5
    keys = {k: n["key_tokens"] for k, n in numbers(tmp_path / "own").items()}
    assert {k: n["key_tokens"] for k, n in numbers(tmp_path / "evaluated").items()} == keys


def test_needle_gain_is_a_share_of_what_the_fact_alone_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(before: list[int], token: int) -> float:
        seen = re.search(rb"\d{7}", bytes(before))
        return 4.0 if not seen else 1.0 if len(before) < 500 else 2.5

    use(monkeypatch, RuleLogprobModel(rule, tokenizer="bytes"))
    grid = {"lengths": "1024", "samples": 2}
    measure(make_spec({"model": "sim:perfect", "tasks": ["needle_gain"], **grid}), tmp_path / "run")
    found = estimate(read_records(tmp_path / "run"), "needle_gain")
    assert found.mean == pytest.approx((4.0 - 2.5) / (4.0 - 1.0))
    one = next(read_records(tmp_path / "run"))
    assert one.question.targets[0].isdigit()
    assert one.wants_logprobs


def test_a_passage_that_does_not_fit_is_a_failure_without_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, RuleLogprobModel(lambda before, token: 1.0, fails=lambda tokens: tokens > 200))
    summary = measure(spec(lengths="128,256"), tmp_path / "run")
    assert (summary.totals.done, summary.totals.failed, summary.totals.failures["out_of_memory"]) == (6, 6, 6)
    failed = [r for r in read_records(tmp_path / "run") if r.failed]
    assert all(r.scores == {} and r.wants_logprobs and r.failure_class == "error" for r in failed)
    assert set(by_length(read_records(tmp_path / "run"), "retrieval_gain")) == {128}


def test_log_probabilities_that_are_no_numbers_are_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, RuleLogprobModel(lambda before, token: math.nan))
    assert measure(spec(samples=1), tmp_path / "run").totals.failures["not_a_number"] == 2


def test_a_run_that_was_cut_off_measures_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = RuleLogprobModel(remembers)
    use(monkeypatch, model)
    folder = tmp_path / "run"
    measure(spec(), folder)
    whole = numbers(folder)
    lines = (folder / "records.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "records.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:50])
    model.calls.clear()
    measure(spec(), folder)
    assert numbers(folder) == whole
    assert len(model.calls) == 2  # two documents of three


def test_a_model_without_log_probabilities_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mute:
        card, asked_per = RuleLogprobModel(remembers).card, "probe"
        tokenizer, frame = RuleLogprobModel(remembers).tokenizer, RuleLogprobModel(remembers).frame

        def close(self) -> None:
            pass

    use(monkeypatch, Mute())
    with pytest.raises(UsageError, match="log-probabilities"):
        plan(spec())


def test_log_probabilities_stay_out_of_everything_that_counts_right_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = make_spec(
        {"model": "sim:perfect", "tasks": ["niah", {"name": "retrieval_gain", "least": 64}], "lengths": "512",
         "depths": 2, "samples": 2}
    )  # fmt: skip
    measure(both, tmp_path / "run")
    records = list(read_records(tmp_path / "run"))
    assert {r.cell.task for r in records} == {"niah", "retrieval_gain"}
    assert set(observations(records).task.tolist()) == {"niah"}
    assert load_run(tmp_path / "run").table.tasks == ["niah"]
    exported = row(next(r for r in records if r.wants_logprobs))
    assert exported["number.retrieval_gain"] == exported["score"]
    assert exported["failure"] is None


def test_the_plan_counts_documents_and_what_is_read_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, RuleLogprobModel(remembers))
    made = plan(spec(samples=4, lengths="128,256"))
    assert made.cost.requests == 8
    assert made.cost.tokens_read == pytest.approx(4 * (128 + 256) * (1 + 2 * 2 * 48 / 256), rel=0.01)
    assert made.cost.output_tokens == 0


# --- simulated models, and the statistics ---------------------------------------------------------


def test_past_its_cliff_a_simulated_model_stays_calm_and_gains_nothing(tmp_path: Path) -> None:
    model = "sim:cliff?window=1k"
    tasks = [{"name": "mean_nll", "least": 64}, {"name": "retrieval_gain", "least": 64}]
    measure(make_spec({"model": model, "tasks": tasks, "lengths": "512,2k", "depths": 2, "samples": 4}), tmp_path / "r")
    records = list(read_records(tmp_path / "r"))
    losses = by_length([r for r in records if r.cell.task == "mean_nll"], "mean_nll")
    gains = by_length([r for r in records if r.cell.task == "retrieval_gain"], "retrieval_gain")
    assert abs(losses[2048].mean - losses[512].mean) < 0.2
    assert gains[512].mean > 2.5
    assert gains[2048].mean == pytest.approx(0, abs=1e-9)


def test_gain_over_distance_shows_a_window(tmp_path: Path) -> None:
    model = "sim:recency?window=300"
    values = {"model": model, "tasks": [{"name": "retrieval_gain", "least": 64}], "lengths": "2k", "depths": 17}
    measure(make_spec({**values, "samples": 5}), tmp_path / "run")
    found = by_distance(read_records(tmp_path / "run"), "retrieval_gain")
    assert found[128].mean > 2
    assert abs(found[1024].mean) < 0.1
    assert list(found) == sorted(found)


def test_intervals_are_over_documents_and_never_those_of_shares() -> None:
    tops, clusters = [0.2, 0.4, 0.6, 0.1, 0.5, 0.3], list("aabbcc")
    found = ratio_interval(tops, [1.0] * 6, clusters)
    means = [0.3, 0.35, 0.4]
    low, high = stats.t.interval(0.95, 2, loc=np.mean(means), scale=np.std(means, ddof=1) / math.sqrt(3))
    assert found.interval.low < low < high < found.interval.high  # three documents may be skewed: wider than t alone
    assert (found.interval.low + found.interval.high) / 2 == pytest.approx(np.mean(means))
    assert found.interval.method == "t over documents"
    weighted = ratio_interval([2.0, 9.0], [1.0, 3.0], ["a", "b"])
    assert weighted.mean == 11 / 4
    assert math.isinf(ratio_interval([1.0], [1.0], ["a"]).interval.high)


def test_the_interval_of_a_ratio_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        keys = rng.poisson(6, 30).astype(float)
        tops = keys * 1.3 + rng.normal(0, 1, 30) * np.sqrt(keys)
        found = ratio_interval(list(tops), list(keys), [str(i) for i in range(30)])
        held += found.interval.holds(1.3)
    assert 0.92 < held / 400 < 0.98


def test_failed_records_are_never_in_a_metric() -> None:
    assert math.isnan(estimate(iter(()), "retrieval_gain").mean)
    records: list[Record] = []
    assert by_length(records, "retrieval_gain") == {}
