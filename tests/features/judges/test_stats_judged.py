"""Corrected means: against published human labels, and against planted truth."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from leadline.features.judges.agreement import agreement
from leadline.features.judges.correction import corrected_mean, rater_quality, rogan_gladen, trend
from leadline.stats.intervals import mean_interval
from support.summhay import ARCHIVE, Summhay, read_summhay

DRAWS = 100
"""Draws of labels per judge; `studies/judges/coverage.py` makes 2,000."""


@pytest.fixture(scope="module")
def summhay() -> Summhay:
    if not ARCHIVE.exists():
        pytest.skip("the public labels are not here")
    return read_summhay()


# --- published: SummHay, 1,419 labels by people on 200 summaries, six judges


@pytest.mark.parametrize(
    ("judge", "agrees", "kappa", "quadratic", "mean", "bias"),
    [
        ("prompted_gemini-1.5-pro", 0.703, 0.548, 0.747, 57.6, 4.1),
        ("9fs_gpt-4o", 0.669, 0.495, 0.713, 59.0, 5.5),
        ("prompted_gpt-4o", 0.662, 0.490, 0.706, 59.3, 5.8),
        ("prompted_claude3-opus", 0.636, 0.454, 0.664, 59.7, 6.1),
        ("prompted_gpt3.5", 0.550, 0.306, 0.480, 64.1, 10.5),
        ("prompted_claude3-haiku", 0.477, 0.187, 0.332, 82.1, 28.5),
        ("median", 0.660, 0.483, 0.693, 62.8, 9.2),
    ],
)
def test_the_published_table_of_judges_is_reproduced(
    summhay: Summhay, judge: str, agrees: float, kappa: float, quadratic: float, mean: float, bias: float
) -> None:
    prompted = [values for name, values in summhay.judges.items() if name.startswith("prompted")]
    values = [median(row) for row in zip(*prompted, strict=True)] if judge == "median" else summhay.judges[judge]
    found = rater_quality(values, summhay.human, summhay.summaries, resamples=2)
    assert found.agreement.cohen is not None
    assert found.agreement.quadratic is not None
    assert found.naive is not None
    assert found.bias is not None
    assert round(found.agreement.raw.value, 3) == agrees
    assert round(found.agreement.cohen.value, 3) == kappa
    assert round(found.agreement.quadratic.value, 3) == quadratic
    assert round(100 * found.naive.mean, 1) == mean
    assert round(100 * found.bias, 1) == bias


def test_alpha_among_the_six_judges_is_the_published_one(summhay: Summhay) -> None:
    ratings = list(zip(*summhay.judges.values(), strict=True))
    assert round(agreement(ratings, resamples=2).krippendorff.value, 3) == 0.457
    assert round(agreement(ratings, level="ordinal", resamples=2).krippendorff.value, 3) == 0.638


def test_the_naive_interval_of_every_judge_misses_the_human_mean(summhay: Summhay) -> None:
    truth = float(np.mean(summhay.human))
    assert round(100 * truth, 1) == 53.6
    naive = {name: mean_interval(values, summhay.summaries) for name, values in summhay.judges.items()}
    assert [name for name, found in naive.items() if found.interval.holds(truth)] == []


@pytest.mark.slow
def test_twenty_labelled_summaries_cure_it(summhay: Summhay) -> None:
    truth, draw = float(np.mean(summhay.human)), np.random.default_rng(2)
    names = sorted(set(summhay.summaries))
    covered, worth = [], {}
    for judge, values in summhay.judges.items():
        widths = []
        for _ in range(DRAWS):
            labelled = set(draw.choice(names, 20, replace=False))
            labels = [h if s in labelled else None for h, s in zip(summhay.human, summhay.summaries, strict=True)]
            found = corrected_mean(values, summhay.summaries, labels)
            assert found is not None
            assert found.documents == 20
            covered.append(found.interval.holds(truth))
            widths.append(found.label_multiplier**-0.5)
        worth[judge] = float(np.mean(widths)) ** -2
    assert 0.93 <= np.mean(covered) <= 0.98
    assert min(worth.values()) >= 1.4


# --- planted truth


def planted(
    draw: np.random.Generator, documents: int = 60, size: int = 5
) -> tuple[list[float], list[float], list[str]]:
    """Truth, verdicts of a lenient judge, and documents whose answers are correlated."""
    level = np.clip(draw.normal(0.6, 0.25, documents), 0, 1)
    truth = (draw.random((documents, size)) < level[:, None]).astype(float)
    says = np.where(truth == 1, draw.random(truth.shape) < 0.95, draw.random(truth.shape) < 0.4).astype(float)
    clusters = [str(n) for n in range(documents) for _ in range(size)]
    return truth.ravel().tolist(), says.ravel().tolist(), clusters


def stratified(
    draw: np.random.Generator, truth: list[float], says: list[float], count: int
) -> tuple[list[float | None], list[str]]:
    """Labels drawn by verdict: half of them among the noes, however few there are."""
    strata = ["yes" if value else "no" for value in says]
    chosen: set[int] = set()
    for stratum in ("yes", "no"):
        inside = [i for i, name in enumerate(strata) if name == stratum]
        chosen |= set(draw.choice(inside, min(count // 2, len(inside)), replace=False).tolist())
    return [label if i in chosen else None for i, label in enumerate(truth)], strata


@pytest.mark.slow
def test_labels_drawn_by_verdict_give_intervals_that_cover_the_planted_truth() -> None:
    draw, mean = np.random.default_rng(11), 0.0
    many = np.clip(np.random.default_rng(0).normal(0.6, 0.25, 200_000), 0, 1)
    mean = float(many.mean())
    control, rogan, naive = [], [], []
    for _ in range(200):
        truth, says, clusters = planted(draw)
        labels, strata = stratified(draw, truth, says, 40)
        found = corrected_mean(says, clusters, labels, strata)
        other = rogan_gladen(says, clusters, labels, strata)
        assert found is not None
        assert other is not None
        control.append(found.interval.holds(mean))
        rogan.append(other.interval.holds(mean))
        naive.append(mean_interval(says, clusters).interval.holds(mean))
    assert np.mean(naive) < 0.2
    assert np.mean(control) >= 0.90
    assert np.mean(rogan) >= 0.92


def test_rogan_gladen_is_the_formula() -> None:
    # 8 of 10 right and 3 of 10 wrong answers are called right; half of 100 unlabelled verdicts are yes.
    says = [1.0] * 8 + [0.0] * 2 + [1.0] * 3 + [0.0] * 7
    labels: list[float | None] = [*[1.0] * 10, *[0.0] * 10]
    says += [1.0] * 50 + [0.0] * 50
    labels += [None] * 100
    found = rogan_gladen(says, [str(n) for n in range(120)], labels)
    assert found is not None
    assert (found.sensitivity, found.specificity) == (0.8, 0.7)
    assert found.mean == pytest.approx((61 / 120 + 0.7 - 1) / (0.8 + 0.7 - 1))
    assert found.interval.holds(found.mean)


@pytest.mark.parametrize(("documents", "size"), [(60, 5), (5, 60)])
def test_rogan_gladen_counts_the_sampling_error_of_what_rules_decided(documents: int, size: int) -> None:
    """Rules decide four answers of five, which have no error of the judge and scatter all the same."""
    draw, covered = np.random.default_rng(5), []
    mean = float(np.clip(np.random.default_rng(0).normal(0.6, 0.25, 200_000), 0, 1).mean())
    for _ in range(200):
        truth, says, clusters = planted(draw, documents, size)
        sent = draw.choice(len(truth), len(truth) // 5, replace=False).tolist()
        labelled = set(draw.choice(sent, 40, replace=False).tolist())
        decided = [(truth[i], clusters[i]) for i in set(range(len(truth))) - set(sent)]
        labels = [truth[i] if i in labelled else None for i in sent]
        found = rogan_gladen([says[i] for i in sent], [clusters[i] for i in sent], labels, decided=decided)
        if found is not None:
            covered.append(found.interval.holds(mean))
    assert len(covered) > 150
    assert np.mean(covered) >= 0.92


def test_too_few_labels_and_a_judge_that_guesses_are_not_corrected() -> None:
    clusters = [str(n) for n in range(40)]
    says = [float(n % 2) for n in range(40)]
    assert corrected_mean(says, clusters, [1.0, 0.0, 1.0] + [None] * 37) is None
    labels: list[float | None] = [float(n % 4 < 2) for n in range(20)] + [None] * 20
    assert rogan_gladen(says, clusters, labels) is None  # sensitivity + specificity = 1


def test_what_is_known_for_certain_adds_no_error() -> None:
    draw = np.random.default_rng(4)
    truth, says, clusters = planted(draw)
    labels, strata = stratified(draw, truth, says, 40)
    alone = corrected_mean(says, clusters, labels, strata)
    decided = [1.0] * 300
    both = corrected_mean(
        [*says, *decided], [*clusters, *(f"r{n}" for n in range(300))], [*labels, *decided], [*strata, *["rule"] * 300]
    )
    assert alone is not None
    assert both is not None
    assert both.labels == alone.labels == 40
    assert both.mean == pytest.approx((alone.mean + 1) / 2)
    assert both.interval.half_width < alone.interval.half_width


@pytest.mark.parametrize("errors", [0.0, 0.02, 0.1])
def test_labels_that_show_no_error_of_the_judge_still_give_an_interval_that_covers_and_is_of_use(errors: float) -> None:
    """Two thirds decided by rules, the rest at four lengths; twenty labels see hardly one of the judge's errors."""
    draw, held, widths = np.random.default_rng(17), [], []
    share = {"rule": 0.9, "judged": 0.3}
    truth = (2 * share["rule"] + share["judged"]) / 3
    for _ in range(150):
        right = draw.random(300) < np.repeat([share["rule"], share["judged"]], [200, 100])
        says = np.where(draw.random(300) < errors, ~right, right)
        says[:200] = right[:200]
        strata = ["rule"] * 200 + [f"{bool(says[200 + n])} {n % 4}" for n in range(100)]
        chosen = [n for s in set(strata[200:]) for n in [i for i in range(200, 300) if strata[i] == s][:3]]
        labels = [float(right[n]) if n < 200 or n in chosen else None for n in range(300)]
        found = corrected_mean(says.astype(float).tolist(), [str(n) for n in range(300)], labels, strata)
        assert found is not None
        held.append(found.interval.holds(truth))
        widths.append(found.interval.high - found.interval.low)
    assert np.mean(held) >= 0.92
    assert np.mean(widths) < 0.3


def test_a_fall_of_agreement_with_length_is_told_from_chance() -> None:
    draw = np.random.default_rng(5)
    lengths = [1024, 4096, 16384] * 80
    clusters = [str(n) for n in range(240)]
    falls = [float(draw.random() < {1024: 0.95, 4096: 0.85, 16384: 0.7}[length]) for length in lengths]
    level = [float(draw.random() < 0.85) for _ in lengths]
    found, other = trend(falls, lengths, clusters), trend(level, lengths, clusters)
    assert found is not None
    assert other is not None
    assert found.falls
    assert not other.falls
    assert trend(level, [1024] * 240, clusters) is None


def test_the_archive_is_read_whole(summhay: Summhay) -> None:
    assert len(summhay.human) == 1419
    assert len(set(summhay.summaries)) == 200
    with tarfile.open(ARCHIVE) as archive:
        file = archive.extractfile("judge/summhay_eval_benchmark_data.json")
        assert file is not None
        assert len(json.load(file)) == 200
    assert Path(ARCHIVE).name == "judge.tar.xz"


@pytest.mark.parametrize(("accuracy", "share"), [(0.5, 0.8), (0.6, 0.9), (0.95, 0.95)])
def test_a_corrected_interval_is_never_wider_than_that_of_the_labels_and_covers(accuracy: float, share: float) -> None:
    rng, held = np.random.default_rng(12), 0
    for _ in range(80):
        truth = (rng.random(200) < share).astype(np.float64)
        verdicts = np.where(rng.random(200) < accuracy, truth, 1 - truth)
        labels: list[float | None] = [None] * 200
        for i in rng.choice(200, 25, replace=False):
            labels[i] = float(truth[i])
        made = corrected_mean(verdicts.tolist(), [str(i) for i in range(200)], labels)
        given = [label for label in labels if label is not None]
        alone = mean_interval(given, [str(i) for i in range(len(given))]).interval
        assert made is not None
        assert made.interval.half_width <= alone.half_width + 1e-9
        held += made.interval.holds(share)
    assert held >= 70
