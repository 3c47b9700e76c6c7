"""Power: published sample sizes, and simulated power at them."""

from __future__ import annotations

import numpy as np
import pytest

from leadline.core.errors import UsageError
from leadline.stats.compare import mcnemar_midp
from leadline.stats.power import detectable_drop, paired_sample_size, seen_variance
from support.planted import planted


@pytest.mark.parametrize(("discordance", "one", "two"), [(0.05, 122, 155), (0.10, 246, 312), (0.20, 493, 626)])
def test_a_five_point_drop_needs_so_many_prompts(discordance: float, one: int, two: int) -> None:
    assert paired_sample_size(0.05, discordance).prompts == one
    assert paired_sample_size(0.05, discordance, sides="two").prompts == two


def test_a_drop_cannot_be_larger_than_what_flips() -> None:
    assert paired_sample_size(0.2, 0.1).prompts == paired_sample_size(0.2, 0.2).prompts


def test_shared_documents_need_more_prompts() -> None:
    assert paired_sample_size(0.05, design_effect=3).prompts == pytest.approx(3 * 246, abs=3)


def test_the_detectable_drop_turns_the_question_round() -> None:
    found = detectable_drop(246, 0.1)
    assert found is not None
    assert found == pytest.approx(0.05, abs=2e-4)
    assert detectable_drop(1, 0.1) is None


def test_an_earlier_run_says_how_noisy_a_comparison_will_be() -> None:
    data = planted(np.full((8, 11), 0.9), 10, np.random.default_rng(0))
    seen = seen_variance(data)
    assert seen.discordance == pytest.approx(2 * 0.9 * 0.1, rel=0.15)
    assert seen.design_effect == 1.0
    shared = planted(np.full((8, 11), 0.9), 10, np.random.default_rng(0), reading="shared", correlation=0.4)
    assert seen_variance(shared).design_effect > 1.5


@pytest.mark.parametrize("drop", [0.0, -0.1, 5.0])
def test_a_drop_that_is_none_is_refused(drop: float) -> None:
    with pytest.raises(UsageError, match="not between 0 and 1"):
        paired_sample_size(drop)


def test_the_promised_power_is_there_and_not_much_more() -> None:
    rng = np.random.default_rng(5)
    drop, discordance = 0.05, 0.1
    n = paired_sample_size(drop, discordance).prompts
    lost = rng.binomial(n, (discordance + drop) / 2, size=2000)
    # Gained answers come from the prompts that were not lost.
    gained = rng.binomial(n - lost, (discordance - drop) / 2 / (1 - (discordance + drop) / 2))
    alarms = [mcnemar_midp(int(b), int(c)) <= 0.10 and b > c for b, c in zip(lost, gained, strict=True)]
    assert 0.77 <= np.mean(alarms) <= 0.86  # a two-sided p of 0.10 is a one-sided one of 0.05
