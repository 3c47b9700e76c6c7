"""What a reader is told before the numbers of judges."""

from __future__ import annotations

import math

from leadline.features.judges.report import judged_notes
from leadline.features.judges.results import JudgeScore, RubricResults, _with_own_name


def results(graded: int, *, sent: int = 100, failed: int = 0, by_rule: int = 100) -> RubricResults:
    score = JudgeScore("judge", (), False, graded, 0, failed, math.nan, None, None, None, None)
    rules = {"exact match": by_rule} if by_rule else {}
    return RubricResults("answer", sent + by_rule, rules, sent, (score,), None, None, {}, {}, {}, None, 0, None)


def leaning(judged: RubricResults) -> list[str]:
    return [note for note in judged_notes(judged) if "lean towards what rules decided" in note]


def test_a_mean_of_some_verdicts_and_all_rules_is_said_to_lean_towards_the_rules() -> None:
    for judged in (results(20), results(20, sent=20, failed=80)):  # graded by other judges, or by none
        assert leaning(judged)[0].startswith("There is no verdict of judge on 80 of 100 answers: ")
    assert leaning(results(100)) == leaning(results(20, by_rule=0)) == []


def test_two_judges_of_one_name_show_their_identities() -> None:
    score = results(10).judges[0]
    assert _with_own_name(score, "0123456789", namesakes=1).name == score.name
    assert _with_own_name(score, "0123456789", namesakes=2).name == f"{score.name} (012345)"
