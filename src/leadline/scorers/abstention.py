"""The score of a question that the document does not answer: 1 for saying so and naming nothing, else 0.

It takes the place of the task's own scorers for such questions, so that every scorer of a task has a value for every
sample. Saying so is the reply that the question asked for, or any wording of "it is not there" that `denials` knows.
"""

from __future__ import annotations

from leadline.core.records import Completion, Score
from leadline.core.types import Probe
from leadline.scorers.answer_forms import Words, form_of, values_of_form, words
from leadline.scorers.denials import says_not_found
from leadline.scorers.normalise import clean


def abstention(probe: Probe, completion: Completion) -> Score:
    """The score, with what the answer names instead in the explanation."""
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
