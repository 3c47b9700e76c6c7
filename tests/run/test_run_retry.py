"""Asking again: bounded, classified, patient with servers that ask for patience, and quick to stop."""

from __future__ import annotations

import threading
import time

import pytest

from leadline.core import backoff
from leadline.core.answers import Completion, Failure
from leadline.core.errors import RunStopped
from leadline.core.spec import Limits
from leadline.core.types import Probe
from leadline.run.events import Waiting
from leadline.run.interrupt import Stop
from leadline.run.retry import Asked, Retrier
from support.scripted_model import Outcome, Script, ScriptedModel, document_of

RIGHT = Completion("7")
BUSY = Failure("server", "busy", transient=True, status=503)
REFUSED = Failure("refused_request", "no", status=400)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_WAIT_SECONDS", 0.01)


def ask(
    script: Script, samples: int = 1, *, limit: int = 6, timeout: float = 600.0
) -> tuple[list[Asked], ScriptedModel]:
    model = ScriptedModel(script, asked_per="document")
    document = document_of(samples)
    asker = Retrier(model, Limits(attempts=limit, timeout=timeout), Stop(), lambda event: None)
    return asker.ask(document, document.probes), model


def fails_first(times: int, failure: Failure = BUSY) -> Script:
    return lambda probe, attempt: failure if attempt <= times else RIGHT


def test_a_transient_failure_is_asked_again_until_it_is_answered() -> None:
    (asked,), model = ask(fails_first(3))
    assert (asked.answer.outcome, asked.attempts, len(model.asked)) == (RIGHT, 4, 4)


def test_attempts_are_bounded_and_the_last_failure_is_kept() -> None:
    (asked,), model = ask(fails_first(99), limit=3)
    assert (asked.answer.outcome, asked.attempts, len(model.asked)) == (BUSY, 3, 3)


@pytest.mark.slow
def test_a_sample_that_is_put_off_while_others_are_answered_has_its_turn_in_the_end() -> None:
    busy = Failure("rate_limited", "too many", transient=True, status=429)
    document = document_of(2)
    slow, quick = document.probes

    def script(probe: Probe, attempt: int) -> Outcome:
        if probe is quick:
            return RIGHT
        asker.ask(document, [quick])  # another worker, and the server has a place for it
        return busy if attempt < 9 else RIGHT

    asker = Retrier(ScriptedModel(script), Limits(attempts=3), Stop(), lambda event: None)
    (asked,) = asker.ask(document, [slow])
    assert (asked.answer.outcome, asked.attempts) == (RIGHT, 9)


class Clock:
    """Stands still but for the waits of the run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.waits: list[float] = []
        monkeypatch.setattr(backoff, "FIRST_WAIT_SECONDS", 0.5)
        monkeypatch.setattr("leadline.core.backoff.time.monotonic", lambda: self.now)
        monkeypatch.setattr(Stop, "wait", lambda stop, seconds: self._wait(stop, seconds))

    def _wait(self, stop: Stop, seconds: float) -> bool:
        self.now += seconds
        self.waits.append(seconds)
        return stop.is_set


def limited_until(clock: Clock, seconds: float, retry_after: float | None) -> Script:
    busy = Failure("rate_limited", "too many", transient=True, retry_after=retry_after, status=429)
    end = clock.now + seconds
    return lambda probe, attempt: busy if clock.now < end else RIGHT


@pytest.mark.parametrize("retry_after", [None, 0.0, 0.001, 5.0, 59.0])
@pytest.mark.parametrize("seconds", [60, 900])
def test_a_rate_limit_is_waited_for(monkeypatch: pytest.MonkeyPatch, retry_after: float | None, seconds: int) -> None:
    clock = Clock(monkeypatch)
    (asked,), model = ask(limited_until(clock, seconds, retry_after), limit=2)
    assert asked.answer.outcome == RIGHT
    assert asked.attempts == len(model.asked) <= 10 + seconds / (retry_after or 15)  # and not asked without a pause


@pytest.mark.parametrize("retry_after", [None, 0.0, 20.0])
def test_a_rate_limit_is_waited_for_no_longer_than_the_limits_allow(
    monkeypatch: pytest.MonkeyPatch, retry_after: float | None
) -> None:
    clock = Clock(monkeypatch)
    document = document_of(1)
    model = ScriptedModel(limited_until(clock, 1e9, retry_after))
    asker = Retrier(model, Limits(attempts=2, rate_limit_wait=300), Stop(), lambda event: None)
    (asked,) = asker.ask(document, document.probes)
    assert isinstance(asked.answer.outcome, Failure)
    assert asked.answer.outcome.why == "rate_limited"
    assert 300 <= sum(clock.waits) < 300 + 40


def test_without_patience_a_rate_limit_uses_up_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    document = document_of(1)
    asker = Retrier(
        ScriptedModel(limited_until(clock, 1e9, None)),
        Limits(attempts=3, rate_limit_wait=0),
        Stop(),
        lambda event: None,
    )
    (asked,) = asker.ask(document, document.probes)
    assert asked.attempts == 3


def test_a_rate_limit_says_how_long_it_has_lasted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, told = Clock(monkeypatch), list[Waiting]()
    document = document_of(1)
    Retrier(ScriptedModel(limited_until(clock, 100, 10.0)), Limits(), Stop(), told.append).ask(
        document, document.probes
    )
    assert told[0].why == "rate limit of the server (status 429)"
    assert "so far" in told[-1].why


def test_other_failures_between_rate_limits_use_up_attempts() -> None:
    busy = Failure("rate_limited", "too many", transient=True, status=429)
    (asked,), _ = ask(lambda probe, attempt: BUSY if attempt % 3 == 0 else busy, limit=2)
    assert (asked.answer.outcome, asked.attempts) == (BUSY, 6)


def test_a_permanent_failure_is_final_at_once() -> None:
    (asked,), model = ask(fails_first(99, REFUSED))
    assert (asked.answer.outcome, asked.attempts, len(model.asked)) == (REFUSED, 1, 1)


def test_in_a_document_only_what_is_still_open_is_asked_again() -> None:
    def script(probe: Probe, attempt: int) -> Outcome:
        if probe.cell.sample == 0:
            return REFUSED
        return BUSY if probe.cell.sample == 2 and attempt < 3 else RIGHT

    asked, model = ask(script, samples=3)
    assert [(a.probe.cell.sample, a.answer.outcome, a.attempts) for a in asked] == [
        (0, REFUSED, 1),
        (1, RIGHT, 1),
        (2, RIGHT, 3),
    ]
    assert [len(c) for c in model.calls] == [3, 1, 1]


def test_waits_grow_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Waiting] = []
    monkeypatch.setattr(Stop, "wait", lambda self, seconds: False)
    model = ScriptedModel(fails_first(99))
    document = document_of(1)
    for _ in range(2):
        Retrier(model, Limits(attempts=12), Stop(), told.append).ask(document, document.probes)
    first, second = [e.seconds for e in told[:11]], [e.seconds for e in told[11:]]
    assert first != second
    for number, seconds in enumerate(first):
        longest = min(backoff.LONGEST_WAIT_SECONDS, 0.01 * 2**number)
        assert longest / 2 <= seconds <= longest
    assert told[0].why == "server (status 503)"


def test_a_named_time_is_waited_for_by_everyone() -> None:
    """One worker is told to come back in 0.3 s; another, which was told nothing, waits too."""
    slow_down = Failure("rate_limited", "slow down", transient=True, retry_after=0.3, status=429)
    model = ScriptedModel(lambda probe, attempt: slow_down if probe.cell.sample == 0 and attempt == 1 else RIGHT)
    document = document_of(2)
    asker = Retrier(model, Limits(), Stop(), lambda event: None)
    worker = threading.Thread(target=lambda: asker.ask(document, document.probes[:1]))
    worker.start()
    while not model.asked:
        time.sleep(0.001)
    time.sleep(0.05)
    asker.ask(document, document.probes[1:])
    worker.join()
    told = next(at for key, at in model.asked if key == document.probes[0].cell.key)
    later = [at - told for key, at in model.asked[1:]]
    assert len(later) == 2
    assert min(later) >= 0.3


def test_a_server_that_wants_to_be_left_alone_for_long_is_not_waited_for() -> None:
    tomorrow = Failure("rate_limited", "tomorrow", transient=True, retry_after=86_400, status=429)
    (asked,), model = ask(fails_first(99, tomorrow))
    assert (asked.answer.outcome, len(model.asked)) == (tomorrow, 1)


def test_a_stopping_run_gives_up_what_waits_and_records_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_WAIT_SECONDS", 60.0)
    stop = Stop()
    model = ScriptedModel(lambda probe, attempt: RIGHT if probe.cell.sample == 0 else BUSY)
    document = document_of(2)
    asker = Retrier(model, Limits(), stop, lambda event: stop.because(RunStopped("enough")))
    asked = asker.ask(document, document.probes)
    assert [a.probe.cell.sample for a in asked] == [0]


def test_a_run_that_has_stopped_asks_nothing() -> None:
    stop = Stop()
    stop.because(RunStopped("enough"))
    model = ScriptedModel(fails_first(0))
    document = document_of(1)
    assert Retrier(model, Limits(), stop, lambda event: None).ask(document, document.probes) == []
    assert model.asked == []


@pytest.mark.parametrize(("retry_after", "longest"), [(1.0, 1.2), (5.0, 5.6), (59.0, 60.0)])
def test_workers_that_were_told_one_time_do_not_come_back_at_once(
    monkeypatch: pytest.MonkeyPatch, retry_after: float, longest: float
) -> None:
    """A wait that a server names is never cut short, and is drawn out by up to a tenth and 0.1 s, at most 1 s."""
    waits = {}
    for end, draw in {"shortest": min, "longest": max}.items():
        clock = Clock(monkeypatch)
        monkeypatch.setattr("leadline.core.backoff.random.uniform", lambda low, high, draw=draw: draw(low, high))
        ask(fails_first(1, Failure("server", "busy", transient=True, retry_after=retry_after, status=503)))
        waits[end] = clock.waits[0]
    assert waits == {"shortest": pytest.approx(retry_after), "longest": pytest.approx(longest)}


@pytest.mark.slow
def test_waits_stay_bounded_however_often_a_server_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    document = document_of(1)
    model = ScriptedModel(limited_until(clock, 40_000, None))
    (asked,) = Retrier(model, Limits(rate_limit_wait=86_400), Stop(), lambda event: None).ask(document, document.probes)
    assert asked.answer.outcome == RIGHT
    assert asked.attempts > 1100  # 2.0 ** 1100 is no number
    assert min(clock.waits[6:]) >= 15.0
    assert max(clock.waits) <= 30.0
