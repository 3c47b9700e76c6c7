"""The list of checks, and making them one after the other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from leadline.core.answers import Failure
from leadline.core.contracts import Model
from leadline.core.errors import LeadlineError, ServerAway, UnknownName
from leadline.core.format import format_count, format_duration, format_length
from leadline.core.secrets import redact
from leadline.features.doctor import counting, generating, reading, serving, templates
from leadline.features.doctor.examiner import CannotCheck, Examiner
from leadline.features.doctor.findings import CheckReport, CheckResult, Finding, Ok, Skipped
from leadline.run.time_limit import TimeLimit

Found = Ok | Finding | Skipped


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what it is called, what a finding does to results, and the function that makes it."""

    id: str
    title: str
    effect: str
    make: Callable[[Examiner], Found]
    cheap: bool = False
    """Whether a run makes it before it begins: it needs a few small requests at most."""
    requests: int = 0
    """The small requests that it usually needs. Requests shared with an earlier check are counted there."""
    documents: int = 0
    """The questions about a document as long as the window."""


CHECKS: tuple[Check, ...] = (
    Check("tokenizer", "tokenizer",
          "every length is wrong: the model reads more or fewer tokens than the report says",
          counting.check_tokenizer, cheap=True, requests=5),
    Check("receipts", "token counts",
          "truncated prompts go unnoticed, and the bill is not what was read",
          counting.check_receipts, cheap=True, requests=1),
    Check("template", "chat template",
          "the model reads a form it was not trained on; scores fall for reasons that are not the context",
          templates.check_template, cheap=True, requests=4),
    Check("system_prompt", "hidden system prompt",
          "instructions that are not shown change answers, and take room in every window",
          templates.check_system_prompt, cheap=True),
    Check("prefix", "answer prefix",
          "answers start anew, in another form than the task expects, and are graded differently",
          generating.check_prefix, cheap=True, requests=3),
    Check("window", "length of the context",
          "samples beyond the real limit fail, and the effective length is that of the server",
          reading.check_window, documents=1),
    Check("truncation", "silent truncation",
          "facts that are cut off count as not found: the heatmap shows the server and not the model",
          reading.check_truncation, requests=5, documents=4),
    Check("rewriting", "rewritten texts",
          "the model is asked about another text than the one that is scored", serving.check_rewriting, requests=13),
    Check("early_stop", "early stop",
          "answers lose their end, or all after the first line, and are graded as wrong",
          generating.check_early_stop, requests=4),
    Check("max_tokens", "limit of output tokens",
          "long answers and thinking are cut off, which is counted as a wrong answer",
          generating.check_max_tokens, requests=1),
    Check("reasoning_parser", "thinking in the answer",
          "thinking is graded as the answer: values that were only considered count as given",
          generating.check_reasoning_parser, cheap=True),
    Check("thinking_budget", "room for the answer",
          "answers are empty: the allowance of the task is spent before they begin",
          generating.check_thinking_budget, cheap=True, requests=1),
    Check("temperature", "temperature",
          "answers are drawn at random where the most likely one was asked for, or the reverse",
          generating.check_temperature, requests=52),
    Check("determinism", "repeated requests",
          "two runs differ by this much without any change of the model: smaller differences mean nothing",
          generating.check_determinism),
    Check("logprobs", "log-probabilities",
          "log-probability tasks measure the load of the server; needle_chance and perplexity are not repeatable",
          generating.check_logprobs, requests=9),
    Check("prefix_cache", "prefix cache",
          "scores stay right; shared and nested reading cost as much time and money as fresh reading",
          counting.check_prefix_cache, requests=2),
    Check("cached_answers", "answers from the cache",
          "shared and nested reading measure the cache too: their scores are not those of fresh reading",
          counting.check_cached_answers, requests=16),
    Check("rate_limit", "rate limit", "the run waits, and takes longer than planned",
          serving.check_rate_limit, cheap=True, requests=16),
    Check("preemption", "interrupted requests",
          "requests are read again or wait for memory: times say nothing about the model, and the run takes longer",
          serving.check_preemption),
    Check("model_name", "name of the model", "the results are those of another model",
          serving.check_model_name, cheap=True),
)  # fmt: skip
"""In the order in which they are made. The last ones use all earlier replies."""

Progress = Callable[[int, int, str], None]
"""(number of the check, number of checks, its title), before each check."""
PACE_WORDS = 200
"""Words of the longer of two requests that show how fast a server reads."""
SMALL_TOKENS = 150
"""Tokens of a usual request of a check."""


class KeptChecks(msgspec.Struct, frozen=True):
    """What was found before a check-up was interrupted."""

    results: tuple[CheckResult, ...] = ()
    numbers: dict[str, float | int | None] = {}


Keep = Callable[[KeptChecks], None]
"""Gets everything that is known so far, after each check."""


def choose_checks(only: Sequence[str] = (), *, cheap: bool = False) -> tuple[Check, ...]:
    """The checks with these ids, or all of them."""
    known = {check.id for check in CHECKS}
    for name in only:
        if name not in known:
            raise UnknownName("check", name, known, where="--check")
    return tuple(c for c in CHECKS if (not only or c.id in only) and (c.cheap or not cheap))


def examine(
    model: Model,
    *,
    only: Sequence[str] = (),
    cheap: bool = False,
    longest: int | None = None,
    seed: int | None = None,
    progress: Progress = lambda number, count, title: None,
    begin: Callable[[CheckReport, str], None] = lambda report, estimate: None,
    keep: Keep = lambda kept: None,
    before: KeptChecks | None = None,
) -> CheckReport:
    """Makes the checks on an open model, except those that were made `before`. Raises ServerAway if it does not answer.

    `begin` gets the report before the first check, with an estimate of requests and time.
    """
    began = time.monotonic()
    examiner = Examiner(model, longest=longest, cheap=cheap, seed=seed)
    serving.require_answer(examiner)
    checks = choose_checks(only, cheap=cheap)
    if any(check.make is serving.check_preemption for check in checks):
        examiner.once(serving.preemptions)  # the count before the first request
    kept = before or KeptChecks()
    examiner.numbers.update(kept.numbers)
    results = {result.check: result for result in kept.results}
    missing = [check for check in checks if check.id not in results]
    begin(_report(model, examiner, kept.results, 0.0), "" if cheap else estimate(examiner, missing))
    for number, check in enumerate(checks, 1):
        if check.id not in results:
            results[check.id] = _make(check, examiner, progress, number, len(checks))
            keep(KeptChecks(tuple(results.values()), dict(examiner.numbers)))
    ordered = tuple(results[check.id] for check in checks)
    return _report(model, examiner, ordered, time.monotonic() - began)


def estimate(examiner: Examiner, checks: Sequence[Check]) -> str:
    """`about 4 min: 105 requests, 5 of them of up to 32k tokens`, from two requests; empty in this process."""
    requests, documents = sum(check.requests for check in checks), sum(check.documents for check in checks)
    if examiner.server is None or not requests + documents:
        return ""
    pace = TimeLimit(math.inf)
    for text in ("Say yes.", "word " * PACE_WORDS + "Say yes."):
        reply = examiner.try_to_ask(text)
        if isinstance(reply, Failure):
            return ""
        pace.answered(examiner.expected_tokens(text), reply.seconds)
    longest = reading.longest_wanted(examiner)
    seconds = requests * pace.expected(SMALL_TOKENS) + documents * pace.expected(longest)
    large = f", {documents} of them of up to {format_length(longest)} tokens" if documents else ""
    return f"about {format_duration(seconds)}: {format_count(requests + documents, 'request')}{large}"


def _report(model: Model, examiner: Examiner, results: tuple[CheckResult, ...], seconds: float) -> CheckReport:
    server = examiner.server
    return CheckReport(
        model=redact(model.card.name),
        server="" if server is None else redact(f"{server.server.kind} {server.server.version}".strip()),
        window=model.card.window,
        results=results,
        numbers=examiner.numbers,
        requests=examiner.requests,
        prompt_tokens=examiner.prompt_tokens,
        seconds=seconds,
    )


def _make(check: Check, examiner: Examiner, progress: Progress, number: int, count: int) -> CheckResult:
    progress(number, count, check.title)
    began, before = time.monotonic(), examiner.requests
    try:
        outcome = check.make(examiner)
    except CannotCheck as why:
        outcome = Skipped(str(why))
    except ServerAway:
        raise
    except LeadlineError as error:  # a document that cannot be made, an endpoint that fails
        outcome = Skipped(error.what)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        outcome = Skipped(f"the server's reply cannot be read ({type(error).__name__}: {str(error)[:200]})")
    return CheckResult.of(
        check.id,
        check.title,
        check.effect,
        outcome,
        requests=examiner.requests - before,
        seconds=time.monotonic() - began,
    )


def cheap_findings(model: Model) -> tuple[str, ...]:
    """One line for each finding of the checks that a run makes before it begins."""
    findings = examine(model, cheap=True).findings
    return tuple(f"{r.title}: {r.evidence}. Effect: {r.effect}. Fix: {r.fix}" for r in findings)
