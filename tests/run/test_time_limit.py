"""`--time`: a run of unknown speed ends in time, and says what it could not tell."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadline.core.answers import Answer
from leadline.core.errors import UsageError
from leadline.core.spec import Spec
from leadline.core.types import Document, Probe
from leadline.models.sim.model import Simulated, SimulatedModel
from leadline.run.events import Event, Note
from leadline.run.measure import Measured, measure_spec
from leadline.run.time_limit import TimeLimit, parse_time
from support.commands import Say

SECONDS = 120.0
SPEEDS = [
    (0.4, 0.0), (1.0, 0.0), (3.0, 0.0), (0.1, 0.0002), (0.0, 0.0005), (0.5, 0.0005), (2.0, 0.0001), (0.2, 0.001),
    (0.0, 0.003), (1.0, 0.002),
]  # fmt: skip
"""Seconds of an answer: a fixed part, and one for each token of the prompt."""


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class TimedModel(SimulatedModel):
    """Takes time on a clock of its own."""

    def __init__(self, clock: FakeClock, fixed: float, per_token: float) -> None:
        super().__init__("decay", Simulated(window=4096))
        self._clock, self._speed = clock, (fixed, per_token)

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        seconds = [self._speed[0] + self._speed[1] * probe.prompt_tokens for probe in probes]
        self._clock.now += sum(seconds)
        answers = super().answer(document, probes)
        return [msgspec.structs.replace(a, seconds=s) for a, s in zip(answers, seconds, strict=True)]


def run_timed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fixed: float, per_token: float, **values: Any
) -> tuple[Measured, float, str]:
    clock, notes = FakeClock(), []

    def listen(event: Event) -> None:
        if isinstance(event, Note):
            notes.append(event.text)

    monkeypatch.setattr("leadline.run.measure.TimeLimit", partial(TimeLimit, clock=clock))
    spec = Spec(
        model="sim:decay", tasks=["niah"], lengths="1k,2k,4k,8k", depths=3, until="effective",
        limits={"time": f"{SECONDS}s", "workers": 1}, **values,
    )  # fmt: skip
    began = clock.now
    measured = measure_spec(spec, folder, listen=listen, open_model=lambda spec: TimedModel(clock, fixed, per_token))
    return measured, clock.now - began, "\n".join(notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("speeds", "least"), [(SPEEDS[2:10:7], 2), pytest.param(SPEEDS, 9, marks=pytest.mark.slow)], ids=["two", "ten"]
)
def test_the_time_is_kept_within_a_fifth_at_nine_of_ten_unknown_speeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speeds: list[tuple[float, float]], least: int
) -> None:
    kept = []
    for number, (fixed, per_token) in enumerate(speeds):
        measured, taken, _ = run_timed(tmp_path / str(number), monkeypatch, fixed, per_token)
        assert measured.rule is not None
        ended_itself = not measured.rule.used_up and taken <= SECONDS
        kept.append(ended_itself or 0.8 * SECONDS <= taken <= 1.2 * SECONDS)
        assert measured.run.totals.done > 0
    assert sum(kept) >= least


def test_lengths_that_the_time_does_not_allow_are_named_and_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, _, notes = run_timed(tmp_path / "run", monkeypatch, 0.0, 0.003)
    assert "2 min 00 s at 12 s for an answer at 4k" in notes
    assert "cannot tell anything about 8k" in notes
    assert 8192 not in {record.cell.length for record in measured.run.records}


@pytest.mark.slow
def test_a_run_goes_on_where_its_time_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _, _ = run_timed(tmp_path / "run", monkeypatch, 3.0, 0.0)
    second, _, _ = run_timed(tmp_path / "run", monkeypatch, 3.0, 0.0)
    assert first.rule is not None
    assert first.rule.used_up == "time"
    assert "the time is used up" in first.rule.sentence
    assert second.run.totals.done > first.run.totals.done + 20


def test_the_pace_has_a_fixed_part_and_one_for_every_token() -> None:
    limit = TimeLimit(100, clock=FakeClock())
    assert limit.expected(4096) == 0
    limit.answered(1000, 2.0)
    limit.answered(2000, 3.0)
    assert limit.expected(5000) == pytest.approx(6.0)
    assert limit.affordable([1000, 2000, 5000, 50_000], cells=8, at_once=2) == [1000, 2000, 5000]


@pytest.mark.parametrize(("text", "seconds"), [("10min", 600), ("90s", 90), ("2h", 7200), ("30", 30), ("1.5 m", 90)])
def test_a_time_has_a_unit_or_is_in_seconds(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["soon", "10 fortnights", "0min", "-3s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        parse_time(text)


def test_the_command_ends_with_what_more_time_would_decide(say: Say) -> None:
    done = say(
        "run", "niah", "--model", "sim:decay?window=4k&latency_seconds=0.2", "--lengths", "1k,2k,4k", "--depths", "2",
        "--workers", "2", "--time", "1.5s", "--no-figure",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "time      used up" in done.out  # between two looks or, on a fast machine, in one
