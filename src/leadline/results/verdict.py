"""The verdict on a run in sentences: headline, findings, and what was not measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from leadline.core.answers import NO_CREDIT_FIX
from leadline.core.errors import UNBUILT
from leadline.core.format import (
    format_count,
    format_duration,
    format_length,
    format_list,
    format_percent,
    format_percent_range,
    format_tokens,
    sanitise,
)
from leadline.results.breakdowns import TaskVerdict, task_verdicts
from leadline.results.run import Run
from leadline.results.sentences import (
    NO_DECLINE,
    against_the_curve,
    effective_warning,
    first_failure,
    format_finding,
    format_threshold,
    reached_lengths,
)
from leadline.results.server_advice import longer_context
from leadline.results.table import PUBLISHED, STRICT, Table, scorer_gaps
from leadline.stats.allocate import parse_until
from leadline.stats.diagnose import diagnose
from leadline.stats.effective import (
    NOT_DECIDED,
    EffectiveLength,
    Threshold,
    effective_length,
    factors_to_decide,
)
from leadline.stats.intervals import CONFIDENCE, FEW_CLUSTERS, answers_behind
from leadline.stats.marginals import design_effect, evidence_by
from leadline.stats.observations import Observations, parts_by_category, parts_by_depth
from leadline.stats.sequential import anytime_effective, rounds_by_length, rounds_to_settle, statuses_by_length

OWN_SHARE = 0.85
"""Of its score at the shortest length: what a model must keep by its own measure (NoLiMa, arXiv 2502.05167)."""

READING_WORDS = {
    "fresh": "a document for each question",
    "shared": "a document for each length",
    "nested": "one document for all lengths",
}
MOST_ROUNDS = 5000
"""Samples a cell beyond which a stopping rule is not said to decide a length."""
REFUSED_SHARE = 0.1
"""Of the prompts: with this many refused ones the headline says so first."""
HARDER = "harder than fresh reading and not comparable with published results"
READING_NOTES = {
    "fresh": "every question had a document of its own, as in published results",
    "shared": "one document answered all depths of a length; the other facts in it are distractors, so this is "
    f"{HARDER}",
    "nested": "one long document answered all lengths and depths; the other facts in it are distractors, so this is "
    f"{HARDER}",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`effective` is None when nothing was answered or only one length was measured."""

    effective: EffectiveLength | None
    by_task: dict[str, EffectiveLength]
    shapes: tuple[str, ...]
    """What the map looks like: in a sentence for one task, by name for several."""
    headline: str
    """One sentence that may be quoted alone."""
    claim: str
    """The same without the model's name, for where it is above."""
    findings: tuple[str, ...]
    not_measured: tuple[str, ...]


_FOUND: WeakKeyDictionary[Run, Verdict] = WeakKeyDictionary()


def verdict(run: Run) -> Verdict:
    """Found once for each run: page, figures and terminal all ask, and a bootstrap for every task takes a while."""
    known = _FOUND.get(run)
    if known is None:
        known = _FOUND[run] = _verdict(run)
    return known


def _verdict(run: Run) -> Verdict:
    samples = run.table.counted
    whole = effective_in(run, samples)
    tasks = {t: effective_in(run, samples.take(samples.task == t)) for t in run.table.tasks}
    by_task = {t: effective for t, effective in tasks.items() if effective is not None}
    said, first, shapes = claim(run, whole), format_truncation(run) + format_refusals(run), _shapes(run, by_task)
    return Verdict(
        effective=whole,
        by_task=by_task,
        shapes=tuple(shapes),
        headline=f"{first}{sanitise(run.label, 80)}{':' if said.startswith(NOT_DECIDED) else ''} {said}",
        claim=first + said[0].upper() + said[1:],
        findings=(*shapes, *_findings(run, whole)),
        not_measured=tuple(_not_measured(run)),
    )


def reading_warning(run: Run) -> str:
    """For reading modes that are harder than the published protocol; else empty."""
    if not run.table.tasks or HARDER not in READING_NOTES.get(run.reading, ""):
        return ""
    return f"{run.reading.capitalize()} reading: the other facts are distractors; {HARDER}."


def effective_in(run: Run, samples: Observations, threshold: Threshold | None = None) -> EffectiveLength | None:
    """The effective length of a part of a run's samples; None where only one length was measured, unless a stopping
    rule chose it among several. With a rule the ends of the interval hold at every look."""
    answered = len(samples.counted().lengths)
    if answered < (1 if run.rule and len(run.table.lengths) > 1 else 2):
        return None
    effective = effective_length(samples, threshold or run.threshold, claimed=run.window)
    if not run.rule:
        return effective
    until = parse_until(run.rule)
    confidence = until.number if until.rule == "effective" else CONFIDENCE
    return anytime_effective(samples, effective, run.table.lengths, confidence)


def effective_parts(run: Run) -> dict[str, dict[str, EffectiveLength]]:
    """The effective length against the model's own short score, and of every task, category and band of depths."""
    samples = run.table.counted
    categories = {task: run.category(task) for task in run.table.tasks if run.category(task)}
    parts = {"category": parts_by_category(samples, categories), "depth": parts_by_depth(samples)}
    by_part = {name: {part: effective_in(run, mine) for part, mine in group.items()} for name, group in parts.items()}
    own = effective_in(run, samples, Threshold(share=OWN_SHARE))
    by_part["own_score"] = {f"{100 * OWN_SHARE:g}% of its score at the shortest length": own}
    known = {name: {part: e for part, e in group.items() if e is not None} for name, group in by_part.items()}
    return {"task": verdict(run).by_task, **known}


def verdict_by_task(run: Run) -> list[TaskVerdict]:
    """How far every task holds, and where it fails first."""
    return task_verdicts(run.table, run.strata, verdict(run).by_task)


def format_truncation(run: Run) -> str:
    """`3 of 20 prompts were not read as sent (...). `, which comes before every claim; empty if all were."""
    totals = run.totals
    if not totals.truncated:
        return ""
    return (
        f"{totals.truncated:,} of {format_count(totals.asked, 'prompt')} {'was' if totals.asked == 1 else 'were'} not "
        f"read as sent ({totals.messages['input_truncated']}) and measure nothing: they "
        f"{run.table.where_failures_count}. "
    )


def format_refusals(run: Run) -> str:
    """`10 of 20 prompts got no answer (refused_request: ...); ... `, before a claim about the others; empty if few."""
    totals = run.totals
    refused = totals.failures - Counter({"input_truncated": totals.truncated})
    count = refused.total()
    if count < REFUSED_SHARE * totals.asked or not count:
        return ""
    why = refused.most_common(1)[0][0]
    fix = too_long_fix(run) if why == "context_length" else ""
    if count == totals.asked:
        reason = f"{why}: {sanitise(totals.messages[why], 120)}"
        return f"None of {format_count(count, 'prompt')} got an answer ({reason}){f'; {fix}' if fix else ''}. "
    counted = "They count as wrong." if run.table.failures == "zero" else "What follows is about the others alone."
    return (
        f"{count:,} of {format_count(totals.asked, 'prompt')} got no answer ({why}: "
        f"{sanitise(totals.messages[why], 120)}){f'; {fix}' if fix else ''}. {counted} "
    )


def too_long_fix(run: Run) -> str:
    """What helps against prompts that are longer than the model accepts: `ask --lengths 1k,2k, or ...`."""
    table = run.table
    inside = [format_length(n) for n in table.lengths if table.by_length[n].done and not table.by_length[n].failed]
    if _is_unbuilt(run):
        return f"ask --lengths {','.join(inside)}" if inside else "ask other --lengths"
    shorter = f"ask --lengths {','.join(inside)}" if inside else "ask shorter --lengths"
    if run.manifest.spec.get("model", "").startswith("openai:"):
        server = run.manifest.fingerprints.get("model.server", "").partition(" ")[0]
        return f"{shorter}, or {longer_context(server, max(table.lengths, default=0))}"
    return f"{shorter}, or give the model a longer window"


def _is_unbuilt(run: Run) -> bool:
    """Whether prompts of a length could not be made, which no other model and no server changes."""
    return run.totals.messages.get("context_length", "").startswith(UNBUILT)


def failures_fix(run: Run) -> str:
    """What to do about the failed samples of a run. Asking the same again helps only against what may pass."""
    again, failures = "run the same command again: only these are asked", run.totals.failures
    if failures["context_length"] and _is_unbuilt(run):
        return too_long_fix(run)
    if failures["context_length"]:
        return f"{too_long_fix(run)}; then {again}"
    if failures["input_truncated"]:
        return f"give the server a longer context, or ask shorter --lengths; then {again}"
    if failures["out_of_memory"]:
        return f"ask shorter --lengths, or use a smaller dtype or a larger device; then {again}"
    if failures["not_a_number"]:
        return f"the model computes NaN: try another dtype (float32, bfloat16) or another engine; then {again}"
    if failures["no_credit"]:
        return f"{NO_CREDIT_FIX}; then {again}"
    if failures["refused_request"] or failures["unsupported"]:
        return f"look at the message: the same request will be refused again; when its cause is gone, {again}"
    return again


def claim(run: Run, effective: EffectiveLength | None) -> str:
    """The verdict as what one would say of the model after its name."""
    if problem := run.totals.answer_problem:
        return f"was not measured: {problem}."
    if effective is None:
        whole = run.table.whole
        if run.totals.failures.total() == run.totals.asked > 0 and not run.totals.truncated:
            return "has no result: nothing was measured."
        if not run.table.tasks and run.logprobs:
            up_to = format_length(max(_measured_lengths(run)))
            return f"was measured by log-probabilities alone, up to {up_to}: no accuracy and no effective length."
        if whole.mean is None:
            return "has no answer that counts." if run.totals.truncated else "has answered nothing yet."
        return f"is right in {format_percent(whole.mean)}% of {format_count(whole.done, 'sample')}."
    if not effective.falls:
        more = f" {format_more(run, effective)}" if effective.open_lengths else ""
        steps = "its scores do not fall steadily with length, so no one length tells"
        return f"{reached_lengths(effective)}: {steps}.{more}"
    if not effective.decided:
        return _open_claim(run, effective)
    claims = f" of the {format_length(run.window)} tokens it claims" if run.window else " tokens"
    shortest = format_tokens(effective.scores[0].length)
    spread = f" ({100 * effective.confidence:g}%: {effective.ends})" if effective.ends else ""
    if effective.bound == "below":
        reached = any(score.mean >= effective.threshold for score in effective.scores)
        what = "does not clearly reach" if reached else "falls short of"
        at = "any" if reached else "every"
        needed = f"the threshold ({format_threshold(effective)}) at {at} length measured"
        return f"{what} {needed}, from {shortest} on{spread}{against_the_curve(effective)}."
    if run.window and effective.length > run.window:
        # Sure where a measured length is surely above the threshold.
        sure = effective.low > run.window and not effective.low_open
        claims = f" tokens, more than the {format_length(run.window)} it claims" if sure else " tokens"
    exceptions = against_the_curve(effective)
    fails = first_failure(effective) or ": no measured length is below the threshold"
    if effective.bound == "at least" and run.window and effective.length < run.window:
        fails = "; no longer prompt was asked"
    if exceptions and effective.bound == "at least":
        fails = ""
    beside = f"; it claims {format_length(run.window)}" if run.window and " claims" not in claims else ""
    return f"can use {effective.point}{claims}{spread}{fails}{exceptions}{beside}."


def _open_claim(run: Run, effective: EffectiveLength) -> str:
    """What is sure although some length may be on either side, and what would decide the rest: `can use less than 1k
    of the 8k tokens it claims (95%); whether it reaches 512 is not decided: 25 more samples a cell at 512 would
    tell.`"""
    more, reached, failed = format_more(run, effective), effective.surely_reached, effective.surely_failed
    if reached is None and failed is None:
        beside = f"; it claims {format_length(run.window)}" if run.window else ""
        return f"{NOT_DECIDED}: {effective.ends}{beside}. {more}"
    known = [f"at least {format_tokens(reached)}"] if reached is not None else []
    known += [f"less than {format_tokens(failed)}"] if failed is not None else []
    claims, beside = " tokens", ""
    if run.window and reached and reached > run.window:
        claims = f" tokens, more than the {format_length(run.window)} it claims"
    elif run.window and failed and failed > run.window:
        beside = f"; it claims {format_length(run.window)}"
    elif run.window:
        claims = f" of the {format_length(run.window)} tokens it claims"
    if len(effective.open_lengths) < 3:
        rest = f"whether it reaches {' or '.join(map(format_tokens, effective.open_lengths))}"
    elif reached is None or failed is None:
        rest = f"how far it reaches {'below' if reached is None else 'beyond'} {format_tokens(failed or reached or 0)}"
    else:
        rest = f"how far it reaches between {format_tokens(reached)} and {format_tokens(failed)}"
    sure = f"can use {' and '.join(known)}{claims}"
    more = more[0].lower() + more[1:]
    return f"{sure} ({100 * effective.confidence:g}%{beside}); {rest} is not decided: {more}"


def format_more(run: Run, effective: EffectiveLength) -> str:
    """`8 more samples a cell at 32k would tell (about 40 min).`: what would decide the open lengths if their scores
    stayed as they are, by the intervals that decide now, at the speed of the run so far."""
    if effective.by_rule:
        return _format_more_of_rule(run, effective)
    factors = factors_to_decide(effective)
    stuck = [length for length, factor in factors.items() if factor is None]
    if stuck:
        return _format_stuck(effective, stuck)
    cells = Counter(point.length for point in run.table.cells)
    done = {length: run.table.by_length[length].done / cells[length] for length in factors}
    more = max(max(1, math.ceil(done[length] * ((factor or 1.0) - 1) - 1e-9)) for length, factor in factors.items())
    totals = run.totals
    # Answers that were asked for at once take less time than their sum, and pauses between sessions are not work.
    spent = min(totals.seconds, totals.model_seconds)
    seconds = (
        spent * more * sum(cells[n] * n for n in factors) / max(sum(run.table.by_length[n].done * n for n in cells), 1)
    )
    time = f" (about {format_duration(seconds)})" if seconds >= 1 else ""
    at = f" at {format_list([format_tokens(n) for n in sorted(factors)])}" if len(factors) < len(cells) else ""
    return f"{format_count(more, 'more sample')} a cell{at} would tell{time}."


def _format_stuck(effective: EffectiveLength, lengths: Sequence[int]) -> str:
    """That no number of samples puts these lengths on one side of the threshold, if their scores stay as they are."""
    scores = "its score" if len(lengths) == 1 else "its scores"
    verb = "is" if len(lengths) == 1 else "are"
    at = format_list([format_tokens(length) for length in lengths])
    return (
        f"{scores} at {at} {verb} too close to the threshold ({format_threshold(effective)}) for more samples to tell."
    )


def _format_more_of_rule(run: Run, effective: EffectiveLength) -> str:
    """The same where a stopping rule asks: by its confidence sequences, up to a number of samples a cell."""
    if run.totals.missing or effective.unasked:
        return "The rule had not finished: run the same command again."
    ask = "raise --samples" if parse_until(run.rule).rule == "effective" else "--until effective asks them"
    open_lengths = [score.length for score in effective.scores if score.state == "open"]
    rounds = statuses_by_length(rounds_by_length(run.table.counted), open_lengths, effective.rule, effective.confidence)
    needed = [rounds_to_settle(status, effective.confidence) for status in rounds]
    if any(count is None or count > MOST_ROUNDS for count in needed):
        return _format_stuck(effective, open_lengths)
    names = format_list([format_tokens(length) for length in open_lengths])
    return f"About {max(count or 0 for count in needed):,} samples a cell at {names} would tell ({ask})."


def format_missing(run: Run) -> str:
    """`42 samples not asked yet.`: a run that was stopped, or is still going; empty if all were asked."""
    missing = run.totals.missing
    return f"{format_count(missing, 'sample')} not asked yet." if missing else ""


def _measured_lengths(run: Run) -> set[int]:
    """The lengths with an answer or a log-probability."""
    answered = {length for length, tally in run.table.by_length.items() if tally.done}
    return answered | {length for estimates in run.logprobs.estimates.values() for length in estimates}


OWN_HAYSTACKS = "Every sample has a haystack of its own: design effect 1."


def format_design_effect(run: Run) -> str:
    """How many documents are behind the samples, and what sharing them costs; empty where nothing was answered."""
    design = design_effect(run.table.counted)
    if not design.samples:
        return ""
    if design.documents == design.samples:
        return OWN_HAYSTACKS
    share = f"{format_count(design.samples, 'sample')} from {format_count(design.documents, 'haystack')}"
    if design.correlation is None:
        effect = f"no answer varies, so each haystack counts as one answer (design effect {design.effect:.1f})"
    else:
        effect = f"intraclass correlation {design.correlation:.2f}, design effect {design.effect:.1f}"
    ((_, evidence),) = evidence_by(run.table.counted.counted(), ())
    # Cells that differ make an overall mean surer than its samples: that is no reason to count more than there are.
    behind = min(answers_behind(evidence.mean, evidence.interval()), design.samples / design.effect)
    worth = format_count(max(1, round(behind)), "independent sample")
    unseen = ""
    if design.unseen is not None:
        these = "this one" if design.documents == 1 else f"these {design.documents:,}"
        unseen = (
            f" No haystack has only wrong answers; if up to {format_percent(design.unseen)}% of haystacks had, "
            f"{these} could still have missed them: effective lengths allow for that, the intervals of "
            "scores do not."
        )
    return f"{share}: {effect}; their intervals are those of about {worth}.{unseen}{_few_documents(run)}"


def format_moved(table: Table) -> list[str]:
    """That samples are counted at another depth than the one asked for; empty if none is."""
    if not table.regridded:
        return []
    samples = format_count(table.regridded, "sample")
    return [f"{samples} counted at the depth nearest to the fact: no sentence ended nearer to the one asked for."]


def _few_documents(run: Run) -> str:
    counts = {n: t.estimate.n_clusters for n, t in run.table.by_length.items() if t.estimate}
    few = [format_length(n) for n, count in sorted(counts.items()) if count < FEW_CLUSTERS]
    if not few:
        return ""
    where = "at every length" if len(few) == len(counts) else f"at {format_list(few)}"
    least = format_count(min(counts.values()), "haystack")
    return f" Only {least} {where}: too few to rely on, plan on {FEW_CLUSTERS} or more."


def _shapes(run: Run, effective: Mapping[str, EffectiveLength]) -> list[str]:
    samples, tasks = run.table.counted, run.table.tasks
    diagnoses = {}
    for task in () if run.totals.answer_problem else tasks:
        mine = samples.take(samples.task == task)
        if len(mine.counted().lengths) > 1:
            diagnoses[task] = diagnose(mine)
    below = {task for task, e in effective.items() if any(score.mean < e.threshold for score in e.scores)}
    if len(tasks) == 1:
        sentences = [
            format_finding(f, d, mean=run.table.whole.mean, below=task in below)
            for task, d in diagnoses.items()
            for f in d.findings
        ]
        return [f"{s[:1].upper()}{s[1:]}." for s in sentences]
    kinds: dict[str, list[str]] = {}
    for task, diagnosis in diagnoses.items():
        kind = NO_DECLINE if diagnosis.kind == "healthy" and task in below else diagnosis.kind
        kinds.setdefault(kind, []).append(sanitise(task, 40))
    return [f"{kind.capitalize()}: {', '.join(names)}." for kind, names in kinds.items()]


def _findings(run: Run, effective: EffectiveLength | None) -> list[str]:
    table, whole = run.table, run.table.whole
    lines = []
    if effective is not None and not run.totals.answer_problem:
        meant = "the longest length measured at which a falling curve through its scores reaches"
        meant = meant if effective.falls else "here the longest length measured whose own score reaches"
        lines.append(f"Effective length is {meant} {format_threshold(effective)}.")
        if warning := effective_warning(effective):
            lines.append(f"{warning[0].upper()}{warning[1:]}.")
    if whole.mean is not None:
        asked_all = all(tally.done + tally.failed for tally in table.cells.values())
        over = "Over all lengths and depths" if asked_all else "Over the lengths and depths that were asked"
        lines.append(
            f"{over} it is right in {format_percent(whole.mean)}% (95%: {format_percent_range(whole.interval)}%)."
        )
    lines += format_scorer_gaps(table)
    memory = run.no_context.whole
    if memory.mean is not None:
        lines.append(
            f"Asked without the document it is right in {format_percent(memory.mean)}% "
            f"(95%: {format_percent_range(memory.interval)}%): so much needs no reading at all."
        )
    known = [(n, t) for n, t in sorted(table.by_length.items()) if t.mean is not None]
    if len(known) > 1:
        (short, first), (long, last) = known[0], known[-1]
        lines.append(
            f"From {format_percent(first.mean)}% at {format_length(short)} "
            f"to {format_percent(last.mean)}% at {format_length(long)}."
        )
    return lines


_SCORER_RULES = {PUBLISHED: "which counts substrings", STRICT: "which takes no answer with other values"}


def format_scorer_gaps(table: Table) -> list[str]:
    """For every task, the lengths at which another scorer differs from the headline by more than its interval."""
    gaps: dict[tuple[str, str, str], list[str]] = {}
    for gap in scorer_gaps(table):
        side = "above" if gap.mean > gap.headline.mean else "below"
        here = f"{format_percent(gap.mean)}% against {format_percent(gap.headline.mean)}%"
        gaps.setdefault((gap.task, gap.scorer, side), []).append(f"{here} at {format_length(gap.length)}")
    return [
        f"{sanitise(task, 40)}: {scorer}, {_SCORER_RULES[scorer]}, lies {side} the interval of the headline score: "
        f"{format_list(lengths)}."
        for (task, scorer, side), lengths in gaps.items()
    ]


def _not_measured(run: Run) -> list[str]:
    """What a reader might think was measured and was not."""
    table, whole = run.table, run.table.whole
    lines = [f"Reading mode {run.reading}: {READING_NOTES.get(run.reading, 'unknown')}."]
    notes = [sanitise(note, 300) for note in run.manifest.notes]
    tasks = tuple(f"{sanitise(title, 300)}:" for title in run.manifest.tasks)  # names stay as they are
    lines += [f"{note if note.startswith(tasks) else note[:1].upper() + note[1:]}." for note in notes]
    longest = max(_measured_lengths(run), default=0)
    if run.window and 0 < longest < run.window:
        lines.append(f"Nothing longer than {format_length(longest)}, of {format_length(run.window)} claimed.")
    if run.rule:
        lines.append(
            f"A rule chose the number of samples of each cell (until {sanitise(run.rule, 200)}). "
            "Intervals are confidence sequences, which hold however often it looked and are wider for it; means lean "
            "a little towards what stopped the run."
        )
    empty = sum(not t.done for t in table.cells.values())
    if empty:
        lines.append(f"{format_count(empty, 'cell')} of {len(table.cells):,} without a single answer.")
    lines += format_moved(table)
    if whole.failed:
        cut = f", {run.totals.truncated:,} of them not read as sent" if run.totals.truncated else ""
        lines.append(
            f"{format_count(whole.failed, 'sample')} failed{cut}; failed samples {table.where_failures_count}."
        )
    lines += filter(None, [format_missing(run)])
    if (read := run.totals.receipts.tokens_per_estimated) is not None:
        lines.append(f"Lengths are estimates: by its receipts the model read {read:.2f} tokens for each of these.")
    if run.totals.receipts.different:
        lines.append(f"{format_count(run.totals.receipts.different, 'sample')} read at another length than was sent.")
    return lines
