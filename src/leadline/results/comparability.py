"""Whether two runs may be compared: what differs between their identities, and why that matters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from leadline.results.run import Run
from leadline.stats.compare import Pairs, pair
from leadline.stats.observations import Failures

TEMPLATE = "chat template"
TOKENIZER = "tokenizer"
FORM = "form of the prompt"
PREFIX = "place of the answer prefix"
IN_THE_TEXT = (TEMPLATE, TOKENIZER, FORM, PREFIX)
"""What makes no difference where the text that the model reads is the same."""
NOT_GRADED_ALIKE = "answers were not graded alike: grade one run again with `leadline rescore`"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that differs between two runs. A refusal means that differences would not be the model's."""

    what: str
    severity: Literal["refuse", "warn"]
    base: str
    candidate: str
    why: str

    def __str__(self) -> str:
        verb = "differ" if self.what in ("lengths", "depths", "samples") else "differs"
        values = f" ({self.base} / {self.candidate})" if self.base or self.candidate else ""
        return f"{self.what} {verb}{values}: {self.why}"


def pair_runs(base: Run, candidate: Run, *, failures: Failures = "excluded") -> tuple[Pairs, list[Obstacle]]:
    """The prompts that both runs asked, and what differs between the runs. Questions without their document are left
    out, as they are of every mean: what a model knows by heart would dilute what it reads."""
    pairs = pair(base.table.requested, candidate.table.requested, failures=failures)
    old, new = ({**run.manifest.compared(), "metrics": run.metrics} for run in (base, candidate))
    return pairs, comparability(old, new, pairs)


def comparability(base: Mapping[str, Any], candidate: Mapping[str, Any], pairs: Pairs | None = None) -> list[Obstacle]:
    """What differs between two runs, from their identities {"spec": ..., "fingerprints": ...}; refusals first.

    The model, its revision and its weights are expected to differ: they are what is compared. Where both say how a turn
    was wrapped ("frame"), the parts that differ are named; where both have the metric of each task ("metrics"), other
    variants of the same metric are. Engines make fingerprints of templates and tokenizers in different ways, so the
    texts of `pairs` decide where their records have digests of them.
    """
    obstacles = [*_spec(base.get("spec", {}), candidate.get("spec", {}))]
    obstacles += _metrics(base.get("metrics", {}), candidate.get("metrics", {}))
    frames = base.get("frame", {}), candidate.get("frame", {})
    for obstacle in _fingerprints(base.get("fingerprints", {}), candidate.get("fingerprints", {})):
        # The fingerprint of a frame is of all its parts: it says that something differs, and not what.
        obstacles += _frame(*frames) if all(frames) and obstacle.what == TEMPLATE else [obstacle]
    if pairs is not None and all(map(_is_known, frames)):
        if pairs.same_text == len(pairs):
            obstacles = [o for o in obstacles if o.what not in IN_THE_TEXT]
        elif pairs.other_text and not any(o.severity == "refuse" for o in obstacles):
            what = f"text of {pairs.other_text:,} of {pairs.same_text + pairs.other_text:,} paired prompts"
            obstacles.append(Obstacle(what, "warn", "", "", "a part of the difference may be the prompt's"))
    return sorted(dict.fromkeys(obstacles), key=lambda o: o.severity != "refuse")


def _is_known(frame: Mapping[str, Any]) -> bool:
    """Whether the text around a turn is known. Hosted servers apply a chat template that they do not show."""
    return bool(frame.get("form") == "completion" or frame.get("before") or frame.get("after"))


def _spec(base: Mapping[str, Any], candidate: Mapping[str, Any]) -> Iterator[Obstacle]:
    if base.get("reading") != candidate.get("reading"):
        why = "shared and nested documents hold other facts as distractors and are harder"
        yield _obstacle("reading mode", "refuse", base.get("reading"), candidate.get("reading"), why)
    if base.get("seed") != candidate.get("seed"):
        why = "another seed gives other prompts, so no two samples form a pair"
        yield _obstacle("seed", "refuse", base.get("seed"), candidate.get("seed"), why)
    for name in ("lengths", "depths", "samples"):
        if base.get(name) != candidate.get(name):
            why = "only what both runs asked is compared"
            yield _obstacle(name, "warn", base.get(name), candidate.get(name), why)
    first, second = _tasks(base), _tasks(candidate)
    for title in sorted(first.keys() ^ second.keys()):
        here = "asked" if title in first else "not asked"
        there = "asked" if title in second else "not asked"
        yield _obstacle(f"task {title}", "warn", here, there, "only what both runs asked is compared")


def _fingerprints(base: Mapping[str, str], candidate: Mapping[str, str]) -> Iterator[Obstacle]:
    in_both = {_task_option(name)[0] for name in base} & {_task_option(name)[0] for name in candidate} - {""}
    for name in sorted(base.keys() | candidate.keys()):
        old, new = base.get(name), candidate.get(name)
        if old == new:
            continue
        kind, *rest = name.split(".")
        title, option = _task_option(name)
        if title in in_both and option == "scorers":
            yield _obstacle(name, "refuse", old, new, NOT_GRADED_ALIKE)
        elif title in in_both:
            yield _obstacle(name, "refuse", old, new, "another task version or option asks another question")
        elif kind == "source" and old is not None and new is not None:
            yield _obstacle(name, "refuse", old, new, "another haystack is another document")
        elif kind == "scorer" and old is not None and new is not None:
            yield _obstacle(name, "refuse", old, new, NOT_GRADED_ALIKE)
        elif kind == "model":
            yield from _model(rest[0] if rest else name, old, new)


def _task_option(name: str) -> tuple[str, str]:
    """`niah[share=0.5]` and `version`, from the name of a fingerprint of a task; empty texts from others."""
    title, _, option = name.removeprefix("task.").rpartition(".") if name.startswith("task.") else ("", "", "")
    return title, option


def _model(name: str, old: str | None, new: str | None) -> Iterator[Obstacle]:
    if "tokenizer" in name:
        why = "as many tokens are not as much text, and pairs are not the same document"
        yield _obstacle(TOKENIZER, "warn", old, new, why)
    elif name in ("frame", "template"):
        yield _obstacle(TEMPLATE, "warn", old, new, "a part of the difference may be the template's")
    elif "decoding" in name:
        yield _obstacle("decoding", "warn", old, new, "a part of the difference may be the decoding's")


def _frame(base: Mapping[str, Any], candidate: Mapping[str, Any]) -> Iterator[Obstacle]:
    """The parts of the prompt around a question that differ."""

    def differs(*names: str) -> bool:
        return any(base.get(name) != candidate.get(name) for name in names)

    if differs("form"):
        why = "a conversation and a text to go on with are different questions to a model"
        yield _obstacle(FORM, "warn", base.get("form"), candidate.get("form"), why)
    elif differs("before", "after", "system"):
        why = "a part of the difference may be the template's"
        yield _obstacle(TEMPLATE, "warn", base.get("fingerprint"), candidate.get("fingerprint"), why)
    if differs("prefill"):
        old, new = ("begins the answer" if side.get("prefill") else "ends the question" for side in (base, candidate))
        yield _obstacle(PREFIX, "warn", old, new, "these are different questions to a model")
    if differs("extra_tokens"):
        why = "there is something in one prompt that is not in the other"
        name, what = "extra_tokens", "number of tokens that the server adds"
        yield _obstacle(what, "warn", base.get(name), candidate.get(name), why)


def _tasks(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {str(task.get("label") or task.get("name")): task for task in spec.get("tasks", ())}


def _obstacle(what: str, severity: Literal["refuse", "warn"], base: Any, candidate: Any, why: str) -> Obstacle:
    return Obstacle(what, severity, _shown(base), _shown(candidate), why)


def _shown(value: Any) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:36]} ..."


# --- variants of one metric


_ROUGE, _CODE, _CHINESE = "ROUGE-L", "code similarity", "F1 of Chinese texts"
_VARIANTS = {
    "rouge": (_ROUGE, "of the package rouge (LongBench)"),
    "rouge_zh": (_ROUGE, "of the package rouge (LongBench)"),
    "rouge.google": (_ROUGE, "of the package rouge_score"),
    "rouge.google_lsum": (_ROUGE, "as rougeLsum of rouge_score, stemmed"),
    "summary": (_ROUGE, "as rougeLsum of rouge_score (InfiniteBench)"),
    "code_similarity (difflib)": (_CODE, "by difflib"),
    "code_similarity (levenshtein)": (_CODE, "by python-Levenshtein"),
    "qa_f1_zh": (_CHINESE, "over words of jieba (LongBench)"),
    "chinese_f1": (_CHINESE, "over characters (InfiniteBench)"),
    "longbench_v2": ("accuracy of LongBench v2", "with 0 for an answer without a letter"),
    "longbench_v2.compensated": ("accuracy of LongBench v2", "with 0.25 for an answer without a letter"),
    **{f"match.{which}": ("string match", "of whole words (match)") for which in ("all", "any")},
    "ruler.v1": ("string match", "anywhere in the answer (ruler.v1)"),
    "ruler.strict": ("string match", "without other candidates (ruler.strict)"),
}
"""By the name of a metric on records: what people call it, and which of several it is."""
_EFFECTS = {
    _ROUGE: "on the same texts they differ by up to ten points",
    _CODE: "on the same answers they differ by 1.4 to 3.2 points",
}


def variant_of(metric: str) -> tuple[str, str] | None:
    """What people call a metric and which of its variants it is; None for one without variants."""
    strict = metric.removesuffix(", strict")
    for name in ("count", "retrieval", "retrieval_zh", "classification"):
        if strict == name:
            return name, "by the official rule" if strict == metric else "without credit for lists of guesses"
    return _VARIANTS.get(metric)


def mixed_variants(scored: Iterable[tuple[str, str]]) -> list[str]:
    """A sentence for every metric of which several variants were used, from pairs of what was scored and its metric."""
    scored_with: dict[str, dict[str, list[str]]] = {}
    for what, metric in scored:
        if variant := variant_of(metric):
            names = scored_with.setdefault(variant[0], {}).setdefault(variant[1], [])
            if what not in names:
                names.append(what)
    return [
        f"{name} is not one metric here: {'; '.join(f'{how} for {_some(what)}' for how, what in hows.items())}. "
        f"{_EFFECTS.get(name, 'They do not give the same number').capitalize()}, so these scores do not compare."
        for name, hows in scored_with.items()
        if len(hows) > 1
    ]


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _metrics(base: Mapping[str, str], candidate: Mapping[str, str]) -> Iterator[Obstacle]:
    for task in sorted(base.keys() & candidate.keys()):
        old, new = base[task], candidate[task]
        first, second = variant_of(old), variant_of(new)
        if first and second and first[0] == second[0] and first != second:
            why = f"these are variants of {first[0]}; {_EFFECTS.get(first[0], 'they do not give the same number')}"
            yield _obstacle(f"metric of {task}", "warn", old, new, why)
