"""`leadline plan --detect`: how many samples a drop needs."""

from __future__ import annotations

import json

import pytest

from leadline.cli.main import answer
from leadline.cli.plan import parse_points
from leadline.core.errors import UsageError


@pytest.mark.parametrize(("text", "share"), [("5pt", 0.05), ("5", 0.05), ("0.05", 0.05), ("2.5 points", 0.025)])
def test_points_may_be_written_in_several_ways(text: str, share: float) -> None:
    assert parse_points(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["x", "0", "-5", "500"])
def test_a_wrong_drop_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_points(text)


def test_a_plan_shows_how_many_samples_detect_a_five_point_drop(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "niah", "--model", "sim:perfect", "--lengths", "512,1k", "--samples", "3", "--depths", "5"]
    assert answer([*words, "--detect", "5pt", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["detection"]
    # One-sided 0.05, 80 % power, a tenth of the answers flipping: 245 prompts (Connett, Smith and McHugh 1987).
    assert found["prompts"] == pytest.approx(245, abs=2)
    assert found["samples_a_cell"] == 25
    assert found["this_run_sees"] > 0.15
