"""The entry point of inspect_ai: each suite and task of Leadline as a task of Inspect.

    inspect eval leadline/ruler_quick --model openai-api/local/NAME -T lengths=8k

The prompts come from the planner and the fitter of `leadline run`, in its order, through a SampleSource; the answers go
to its scorers. Inspect asks. The source also implements `until`, round by round: Inspect (0.3.285) refuses its
EarlyStopping for tasks with a source, and it would need all samples laid out before the first answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import anyio
from inspect_ai import SampleSource, Task, task
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import SampleScore, Score, mean, metric, scorer
from inspect_ai.solver import solver
from rich.markup import escape

from leadline.console.options import RunOptions, spec_of
from leadline.console.output import say
from leadline.core import registry
from leadline.core.errors import LeadlineError, UsageError
from leadline.features.harness_tasks.feeding import SampleFeed
from leadline.features.harness_tasks.grading import (
    grade_logged,
    logged_observations,
    means_with_intervals,
    why_unscored,
)
from leadline.features.harness_tasks.inspect_samples import answer_of, inspect_sample, outcome_of, prompt_of
from leadline.models.openai.provider import OpenAIModel
from leadline.models.openai.template import prefill_fields
from leadline.run.plan import Plan, prepare
from leadline.store.logged_questions import logged_question

Values = str | int | float | list[Any] | None
"""An argument as `-T` gives it: a number, a text, or a list where the text has commas."""


def leadline_task(
    what: str,
    lengths: Values = None,
    depths: Values = None,
    samples: int | None = None,
    reading: str | None = None,
    seed: int | None = None,
    until: str = "",
    allowance: Values = None,
    set: Values = None,
    counted_as: str | None = None,
) -> Any:
    """A suite or task with the options of `leadline run`. `counted_as` is the model by its name in Leadline, whose
    tokenizer and chat template count the lengths; by default that of the model that Inspect evaluates."""
    try:
        model = counted_as or leadline_name(get_model())
        options = RunOptions(
            what=what, model=model, lengths=_text(lengths), depths=_text(depths), samples=samples, reading=reading,
            seed=seed, allowance=_text(allowance),
            set_=[str(pair) for pair in (set if isinstance(set, list) else [set] if set is not None else [])],
        )  # fmt: skip
        spec = spec_of(options)
        if until:
            spec = spec.model_validate({**spec.model_dump(exclude_unset=True), "until": until})
        plan = prepare(spec, planning=True)
        return _task_of(plan)
    except LeadlineError as error:
        raise PrerequisiteError(escape(str(error))) from error


def _text(value: Values) -> str | None:
    if value is None:
        return None
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def leadline_name(model: Any) -> str:
    """Leadline's name for a model of Inspect, to count in its tokens."""
    provider, api = str(model).partition("/")[0], model.api
    if provider == "hf":
        return f"hf:{getattr(api, 'model_path', None) or api.model_name}"
    address = getattr(api, "base_url", None)
    if not address:
        raise UsageError(
            f"how many tokens a text has for {model} is not known here",
            where="counted_as",
            fix="name the model as `leadline run` does: -T counted_as=hf:OWNER/NAME, or "
            '-T "counted_as=openai:NAME?base_url=URL&tokenizer=FOLDER"',
        )
    name = api.service_model_name() if hasattr(api, "service_model_name") else api.model_name
    variable = f"{str(getattr(api, 'service', 'openai')).upper().replace('-', '_')}_API_KEY"
    key = f"&api_key_env={variable}" if os.environ.get(variable, "") else ""
    return f"openai:{name}?base_url={address}{key}"


def _task_of(plan: Plan) -> Any:
    feed = SampleFeed(plan)
    if plan.fitter.frame.form == "completion":
        raise UsageError(
            "the lengths count a text without chat template, and Inspect sends messages",
            where=plan.spec.model,
            fix="leave out api=completions, or name a model with a chat template",
        )
    kind = plan.model.server.kind if isinstance(plan.model, OpenAIModel) else ""
    return Task(
        dataset=_source(plan, feed),
        solver=ASK(prefill_fields(kind)),
        scorer=GRADE(),
        metrics=[mean(), MEANS(plan.spec.until, list(plan.spec.lengths))],
        config=GenerateConfig(temperature=0, max_connections=plan.at_once),
        fail_on_error=False,
        version=plan.manifest.digest,
        metadata={"leadline": plan.spec.identity(), "notes": list(plan.notes)},
    )


def _source(plan: Plan, feed: SampleFeed) -> Any:
    """Calls come from Inspect's event loop, where making documents and counting tokens must not block."""
    turn = anyio.Lock()

    async def samples_of(more: Callable[[], Sequence[Any]]) -> list[Any]:
        async with turn:
            return [inspect_sample(following) for following in await anyio.to_thread.run_sync(more)]

    async def sample_complete(sample: Any) -> list[Any] | None:
        def answered() -> Sequence[Any]:
            feed.answered(str(sample.id), answer_of(sample))
            return feed.ready()

        return await samples_of(answered)

    async def next_samples() -> list[Any] | None:
        if following := await samples_of(feed.after_all):
            return following
        if feed.outcome:
            say(feed.outcome)
        plan.close()
        return None

    first = [inspect_sample(following) for following in feed.ready()]
    return SampleSource.from_samples(first, next_samples=next_samples, sample_complete=sample_complete)


# --- what the tasks are made of


def _ask(continue_fields: dict[str, bool]) -> Any:
    """Asks with the allowance of each question, which is part of its length. `continue_fields` tell the server to go
    on with the begun answer."""

    async def solve(state: Any, generate: Any) -> Any:
        if why := state.metadata.get("not_asked"):
            raise RuntimeError(why)
        begun = {"extra_body": continue_fields} if continue_fields and state.metadata["answer_prefix"] else {}
        return await generate(state, max_tokens=state.metadata["answer_tokens"], **begun)

    return solve


def _grade() -> Any:
    """The first scorer's value, with all scores and the failure class beside it."""

    async def score(state: Any, target: Any) -> Any:
        fields, where = state.metadata, str(state.sample_id)
        question = logged_question(fields, where)
        if question is None:
            raise UsageError("this sample has no question of Leadline", where=where, fix="score it by another scorer")
        outcome = outcome_of(state.output, "", fields)
        grade = grade_logged(question, outcome, fields, prompt_of(state.messages))
        beside = {"failure_class": grade.failure_class, "detail": grade.detail}
        if why := why_unscored(outcome, grade):
            return Score.unscored(reason="scoring_failed", explanation=why, metadata=beside)
        name, headline = next(iter(grade.scores.items()))
        return Score(
            value=headline.value,
            answer=headline.answer or state.output.completion,
            explanation=headline.explanation or None,
            metadata={**beside, "scorer": name, "scores": {name: s.value for name, s in grade.scores.items()}},
        )

    return score


def _means(until: str, lengths: list[int]) -> Any:
    """Means by task and length with their intervals, and the effective length."""

    def compute(scores: list[SampleScore]) -> dict[str, float]:
        rows = [(s.sample_metadata or {}, s.score.as_float()) for s in scores]
        return means_with_intervals(logged_observations(rows), until, lengths)

    return compute


MEANS = metric(name="leadline_means")(_means)
ASK = solver(name="leadline_ask")(_ask)

GRADE = scorer(metrics=[mean()], name="leadline")(_grade)


# --- one for each suite and task


def _registered() -> dict[str, Any]:
    """By the names of `leadline run`, a dash as an underscore; where a task and a suite then have one name, the suite
    has its dash only."""
    tasks, suites = registry.names("tasks"), registry.names("suites")
    names = {name: name for name in (*tasks, *suites)}
    names |= {alias: name for name in suites if (alias := name.replace("-", "_")) not in names}
    return {alias: task(name=alias)(_named(alias, name)) for alias, name in names.items()}


def _named(alias: str, what: str) -> Callable[..., Any]:
    def run(
        lengths: Values = None,
        depths: Values = None,
        samples: int | None = None,
        reading: str | None = None,
        seed: int | None = None,
        until: str = "",
        allowance: Values = None,
        set: Values = None,
        counted_as: str | None = None,
    ) -> Any:
        return leadline_task(what, lengths, depths, samples, reading, seed, until, allowance, set, counted_as)

    run.__name__ = alias
    return run


TASKS = _registered()
