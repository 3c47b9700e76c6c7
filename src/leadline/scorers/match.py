"""The values of an answer: whole words that are not denied. And for a question without an answer, whether it says so.

match.all    the share of targets that the answer gives
match.any    1 when the answer gives any target
match.exact  1 when the answer is one of the targets and nothing else (punctuation around it aside)

An answer gives a target if it contains the target letter for letter (in any letter case, as `ruler.v1` asks), as whole
words, and does not deny it. `match.all` and `match.any` are therefore never above `ruler.v1`.

`abstention` takes the place of a task's own scorers for questions that the document does not answer, so that every
scorer of a task has a value for every sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from leadline.core.records import Completion, Score
from leadline.core.types import Probe
from leadline.scorers.answer_forms import Words, form_of, values_of_form, words
from leadline.scorers.denials import asks_for_what_is_not, says_not_found
from leadline.scorers.normalise import VERSION, bare, clean, post_process

_SHOWN_CHARACTERS = 200


def given_targets(probe: Probe, answer: str) -> list[str]:
    """The targets that an answer gives, duplicates included."""
    said = Words(answer)
    plain = post_process(answer).lower()
    given = said.found if asks_for_what_is_not(probe.question) else said.affirmed
    stated = set(map(clean, given(probe.targets)))
    return [t for t in probe.targets if t.lower() in plain and (clean(t) in stated or _is_only_signs(t))]


def _is_only_signs(target: str) -> bool:
    return bool(clean(target)) and not Words(target).list


def listed(values: Sequence[str]) -> str:
    """Values on one line, shortened for the record."""
    text = ", ".join(values)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


@dataclass(frozen=True, slots=True)
class MatchAll:
    name: str = "match.all"
    version: ClassVar[str] = VERSION

    def score(self, probe: Probe, completion: Completion) -> Score:
        given = given_targets(probe, completion.text)
        missing = [t for t in probe.targets if t not in given]
        return Score(
            value=len(given) / len(probe.targets) if given else 0.0,
            answer=listed(given),
            explanation=f"missing: {listed(missing)}" if missing else "",
        )


@dataclass(frozen=True, slots=True)
class MatchAny:
    name: str = "match.any"
    version: ClassVar[str] = VERSION

    def score(self, probe: Probe, completion: Completion) -> Score:
        given = given_targets(probe, completion.text)
        return Score(value=1.0 if given else 0.0, answer=listed(given[:1]))


@dataclass(frozen=True, slots=True)
class MatchExact:
    name: str = "match.exact"
    version: ClassVar[str] = VERSION

    def score(self, probe: Probe, completion: Completion) -> Score:
        said = bare(completion.text)
        given = words(clean(completion.text))  # with the sign of a number, which is no punctuation
        right = bool(said) and any(said == bare(t) and given == words(clean(t)) for t in probe.targets)
        return Score(value=1.0 if right else 0.0, answer=said[:_SHOWN_CHARACTERS])


def abstention(probe: Probe, completion: Completion) -> Score:
    """1 for saying that the document has no answer and naming none, else 0. Saying so is the reply that the question
    asked for, or any wording of "it is not there" that `denials` knows."""
    named = _named_values(probe, completion.text)
    if named:
        return Score(0.0, answer=named[0], explanation="the document has no answer, and the model names one")
    said = Words(completion.text)
    reply = next((t for t in probe.targets if said.count(t)), "")
    if reply or says_not_found(completion.text):
        return Score(1.0, answer=reply)
    return Score(0.0, explanation="the document has no answer, and the model does not say so")


def _named_values(probe: Probe, text: str) -> list[str]:
    """Values that the answer states: planted ones, and where values have a form of their own any of that form."""
    said = Words(text)
    asked = set(words(clean(probe.question)))
    offered = list(probe.distractors)
    if probe.value_kind in ("numbers", "uuids"):
        offered += values_of_form(form_of(probe), probe.distractors, text)
    return [v for v in said.affirmed(offered) if clean(v) not in asked]


ALL = MatchAll()
ANY = MatchAny()
EXACT = MatchExact()
