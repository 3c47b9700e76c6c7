"""What needs no judge, and which judge may grade which model.

Rules come first: an answer that is exactly the target is right, and an empty, refused or cut-off one is wrong. They are
not sent to any judge. The family of a model is its lineage: a judge of the tested model's own family prefers its own
mistakes, so it is refused unless it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from leadline.core.records import Completion, Record
from leadline.core.types import Match
from leadline.scorers.answer_forms import Words
from leadline.scorers.judges.prompt import JudgedSample, answer_text
from leadline.scorers.judges.rubric import AskedItem, ItemAnswer, Rubric
from leadline.scorers.normalise import bare

RULES = ("exact match", "empty", "refused", "cut off")


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    rule: str
    value: float


def decide(record: Record, match: Match) -> RuleVerdict | None:
    """What a rule says about an answer; None where it takes a judge."""
    assert isinstance(record.outcome, Completion)
    if not answer_text(record).strip() or record.failure_class == "empty":
        return RuleVerdict("empty", 0.0)
    if record.failure_class == "refused":
        return RuleVerdict("refused", 0.0)
    if record.failure_class == "cut_off":
        return RuleVerdict("cut off", 0.0)
    if is_exact(record.targets, record.outcome.text, match):
        return RuleVerdict("exact match", 1.0)
    return None


def is_exact(targets: Sequence[str], answer: str, match: Match) -> bool:
    """Whether the answer is the target, or the list of all targets, and nothing else."""
    wanted = {bare(target) for target in targets} - {""}
    if not wanted or not bare(answer):
        return False
    if match == "any" or len(wanted) == 1:
        return bare(answer) in wanted
    return {bare(part) for part in re.split(r"[,;\n]|\band\b", answer)} - {""} == wanted


def plain_answers(sample: JudgedSample, items: Sequence[AskedItem], right: bool | None = None) -> dict[str, ItemAnswer]:
    """What the words of the answer alone say to each item, or what is known about a known case (`right`).

    A simulated judge starts from it.
    """
    words = Words(sample.answer)
    found: dict[str, ItemAnswer] = {}
    for asked in items:
        targets = asked.targets or (sample.targets if asked.item.scale else ())
        hits = sum(words.count(target) > 0 for target in targets)
        stated = bool(targets) and (hits > 0 if sample.match == "any" else hits == len(targets))
        if right is not None:
            stated = right and asked.item.role == "credit"
        if asked.item.scale is not None:
            found[asked.key] = asked.item.scale[1 if stated else 0]
        else:
            found[asked.key] = "yes" if stated else "no"
    return found


def rubric_fits(rubric: Rubric, targets: Sequence[str]) -> bool:
    """Whether a sample has what the rubric asks about."""
    return bool(targets) or not any(item.each for item in rubric.items)


# --- families

_FAMILIES: tuple[tuple[str, str], ...] = (
    ("gpt", r"gpt|chatgpt|davinci|(?<![a-z])o[1345](?![a-z0-9])"),
    ("claude", r"claude"),
    ("gemini", r"gemini|gemma|palm"),
    ("qwen", r"qwen|qwq"),
    ("deepseek", r"deepseek"),
    ("mistral", r"mistral|mixtral|ministral|magistral|codestral"),
    ("llama", r"llama(?!cpp|\.cpp)|vicuna|alpaca|nemotron"),
    ("smollm", r"smollm"),
    ("phi", r"(?<![a-z])phi(?![a-z])"),
    ("command", r"command-?[ra]|(?<![a-z])aya(?![a-z])|cohere"),
    ("grok", r"grok"),
    ("glm", r"glm"),
    ("kimi", r"kimi|moonshot"),
    ("minimax", r"minimax|abab"),
    ("yi", r"(?<![a-z])yi(?![a-z])"),
    ("olmo", r"olmo"),
    ("falcon", r"falcon"),
    ("granite", r"granite"),
    ("jamba", r"jamba"),
    ("internlm", r"internlm"),
)
"""Lineages by how their models are called. A distilled model carries two names; both count."""


def families(*names: str) -> tuple[str, ...]:
    """The families that the names of a model say; a model of no known family is a family of its own."""
    simulated = [name for name in names if name.startswith("sim:")]
    if simulated:
        return ("sim-judge",) if simulated[0].startswith("sim:judge") else ("sim",)
    bases = [name.partition("?")[0].rstrip("/").rpartition("/")[2].casefold() for name in names]
    found = tuple(family for family, pattern in _FAMILIES if any(re.search(pattern, base) for base in bases))
    return found or (re.sub(r"^[a-z]+:", "", bases[0]),)
