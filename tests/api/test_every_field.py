"""`leadline.measure` does what the spec says: every field of Spec and of Limits has an effect that can be seen.

A new field fails the first test until it has a function here that shows its effect.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import leadline
from leadline.core.answers import Failure
from leadline.core.errors import LeadlineError, RunStopped, UsageError
from leadline.core.spec import Limits, Spec, make_spec
from leadline.features.judges.verdicts import read_verdicts
from leadline.results.repeats import repeats_of
from leadline.run.events import Event, Note, RuleChecked
from support.fake_server import FakeServer, Faults

GRID: dict[str, Any] = {
    "model": "sim:perfect", "tasks": [{"name": "niah", "haystack": "noise"}], "lengths": "512", "depths": 2,
    "samples": 2,
}  # fmt: skip
PRICES = """
date = 2026-11-01
[models."sim:perfect"]
input = 1000.0
output = 1000.0
tiers.batch = {factor = 0.5}
"""
TRACKER = """
from pathlib import Path
from leadline.core.contracts import Tracker

class Notebook(Tracker):
    def check(self, place):
        pass

    def write(self, place, entry):
        Path("entry.txt").write_text(f"{entry.name} {entry.step}")
        return "entry.txt"
"""


def run(folder: Path, name: str = "run", **values: Any) -> leadline.Run:
    return leadline.measure(make_spec({**GRID, **values}), folder / name)


def of_server(server: FakeServer, **limits: Any) -> dict[str, Any]:
    model = f"openai:fake?base_url={server.base_url}&tokenizer=bytes"
    return {"model": model, "lengths": "4k", "limits": limits}


# --- the fields of a spec


def model(folder: Path) -> None:
    assert run(folder, model="sim:perfect?noise=1&seed=2").table.whole.mean != run(folder, "other").table.whole.mean


def tasks(folder: Path) -> None:
    assert {record.cell.task for record in run(folder, tasks=["passkey"]).records} == {"passkey"}


def lengths(folder: Path) -> None:
    assert {record.cell.length for record in run(folder, lengths="512,1k").records} == {512, 1024}


def depths(folder: Path) -> None:
    assert {record.cell.depth for record in run(folder, depths="0.3").records} == {0.3}


def samples(folder: Path) -> None:
    assert {record.cell.sample for record in run(folder, samples=3).records} == {0, 1, 2}


def reading(folder: Path) -> None:
    def documents(read: leadline.Run) -> int:
        return len({record.document for record in read.records})

    assert documents(run(folder, "shared", reading="shared", lengths="1k")) == 2
    assert documents(run(folder, "fresh", reading="fresh", lengths="1k")) == 4


def seed(folder: Path) -> None:
    first, second = ({r.sent.digest for r in run(folder, str(n), seed=n).records} for n in (1, 2))
    assert first.isdisjoint(second)


def until(folder: Path) -> None:
    events: list[Event] = []
    spec = make_spec({**GRID, "until": "effective", "samples": 40, "lengths": "512,1k"})
    measured = leadline.measure(spec, folder / "run", listen=events.append)
    assert any(isinstance(event, RuleChecked) for event in events)
    assert 0 < measured.totals.done < 2 * 2 * 40


def allowance(folder: Path) -> None:
    (more,) = {record.question.allowance for record in run(folder, "more", allowance="100").records}
    (plain,) = {record.question.allowance for record in run(folder, "plain").records}
    assert more - plain == 100


def judges(folder: Path) -> None:
    judge = "sim:judge?seed=1"
    judged = run(folder, judges={"models": [judge], "min_accuracy": 0})
    assert {verdict.judge for verdict in read_verdicts(judged.folder).values()} >= {judge}


def log(folder: Path) -> None:
    Path("mine.py").write_text(TRACKER)
    events: list[Event] = []
    spec = make_spec({**GRID, "log": {"to": ["./mine.py:Notebook"], "step": 7, "run_name": "series"}})
    leadline.measure(spec, folder / "run", listen=events.append)
    assert Path("entry.txt").read_text() == "series 7"
    assert any(isinstance(event, Note) and "logged step 7" in event.text for event in events)


def limits(folder: Path) -> None:
    """Each of them is below."""


# --- the fields of its limits


def workers(folder: Path) -> None:
    for at_once in (1, 4):
        with FakeServer(Faults(delay_seconds=0.05)) as server:
            run(folder, str(at_once), **of_server(server, workers=at_once), samples=4)
            assert server.peak_in_flight == at_once


def timeout(folder: Path) -> None:
    with FakeServer(Faults(hang=1.0, attempts=None), kind="vllm") as server:
        spec = make_spec({**GRID, **of_server(server, timeout=0.3, attempts=1), "samples": 1})
        found = leadline.measure(spec, folder / "run", checks=False)
    assert {r.outcome.why for r in found.records if isinstance(r.outcome, Failure)} == {"timeout"}


def attempts(folder: Path) -> None:
    with FakeServer(Faults(rate_500=1.0, attempts=None), kind="vllm") as server:
        spec = make_spec({**GRID, **of_server(server, attempts=2), "samples": 1})
        found = leadline.measure(spec, folder / "run", checks=False)
    assert {record.attempts for record in found.records} == {2}


def rate_limit_wait(folder: Path) -> None:
    with FakeServer(Faults(rate_429=1.0, attempts=None, retry_after=5.0), kind="vllm") as server:
        spec = make_spec({**GRID, **of_server(server, rate_limit_wait=1, attempts=1), "samples": 1})
        found = leadline.measure(spec, folder / "run", checks=False)  # returns at once: five seconds are too long
    assert {record.attempts for record in found.records} == {1}


def breaker(folder: Path) -> None:
    with FakeServer(Faults(rate_500=1.0, attempts=None), kind="vllm") as server:
        spec = make_spec({**GRID, **of_server(server, attempts=1, breaker=3, workers=1), "samples": 10})
        with pytest.raises(RunStopped, match="3 samples in a row"):
            leadline.measure(spec, folder / "run", checks=False)


def ray(folder: Path) -> None:
    with FakeServer() as server, pytest.raises(UsageError, match="cannot be copied to more machines"):
        run(folder, **of_server(server, ray=2))


def allow_tokenizer_mismatch(folder: Path) -> None:
    with FakeServer(kind="vllm") as server:
        values = of_server(server, allow_tokenizer_mismatch=False)
        values["model"] = values["model"].replace("tokenizer=bytes", "tokenizer=whitespace")
        with pytest.raises(LeadlineError, match="tokenizer"):
            leadline.measure(make_spec({**GRID, **values}), folder / "run", checks=False)
        values["limits"] = {"allow_tokenizer_mismatch": True}
        assert leadline.measure(make_spec({**GRID, **values}), folder / "run", checks=False).totals.done == 4


def prices(folder: Path) -> None:
    assert "usd" in run(folder, limits={"prices": _prices()}).paid


def tier(folder: Path) -> None:
    batch = run(folder, limits={"prices": _prices(), "tier": "batch"})
    assert "batch tier" in batch.paid


def batch(folder: Path) -> None:
    with pytest.raises(UsageError, match="has no batches"):
        run(folder, limits={"batch": True})


def repeats(folder: Path) -> None:
    again = repeats_of(run(folder, "again", limits={"repeats": 0.5}).folder)
    assert again is not None
    assert again.questions == 2
    assert repeats_of(run(folder, "once").folder) is None


def budget(folder: Path) -> None:
    with pytest.raises(RunStopped, match=r"the budget of 1\.00 usd is reached"):
        run(folder, limits={"prices": _prices(), "budget": "1usd"})


def time(folder: Path) -> None:
    with pytest.raises(RunStopped, match="is used up"):
        run(folder, model="sim:perfect?latency_seconds=0.1", samples=200, limits={"time": "1s", "workers": 1})


def _prices() -> str:
    Path("prices.toml").write_text(PRICES)
    return "prices.toml"


EFFECTS: dict[str, Callable[[Path], None]] = {
    effect.__name__: effect
    for effect in (
        model, tasks, lengths, depths, samples, reading, seed, until, allowance, judges, log, limits, workers, timeout,
        attempts, rate_limit_wait, breaker, ray, allow_tokenizer_mismatch, prices, tier, batch, repeats, budget, time,
    )
}  # fmt: skip


def test_every_field_of_a_spec_and_of_its_limits_has_an_effect_that_is_tested() -> None:
    assert set(EFFECTS) == Spec.model_fields.keys() | Limits.model_fields.keys()


@pytest.mark.parametrize("field", EFFECTS)
def test_measure_does_what_the_field_says(field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    EFFECTS[field](tmp_path)


def test_a_rule_in_a_spec_may_ask_as_many_samples_as_on_the_command_line() -> None:
    assert make_spec({**{k: v for k, v in GRID.items() if k != "samples"}, "until": "effective"}).samples == 100


def test_a_library_call_hears_what_is_waited_for_while_the_model_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[object] = []

    def refuse(spec: Spec, opened: object, *, listen: object) -> None:
        heard.append(listen)
        raise UsageError("enough was heard")

    monkeypatch.setattr("leadline.run.measure.prepare", refuse)
    with pytest.raises(UsageError, match="enough was heard"):
        leadline.measure(make_spec(GRID), tmp_path / "run", listen=print)
    assert heard == [print]
