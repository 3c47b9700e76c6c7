"""Comparing two runs, and the gate: pairing, tests, corrections, verdicts, and what may not be compared."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from scipy.stats import binomtest, permutation_test

from leadline.core.errors import UsageError
from leadline.core.format import format_tokens
from leadline.core.types import Cell
from leadline.report.comparison import comparison_markdown, format_check, gate_markdown, junit_xml
from leadline.results.comparability import comparability
from leadline.stats.compare import _differences, compare, group_pairs, holm, mcnemar_midp, pair, sign_flip_p
from leadline.stats.gate import _root_of_correlation, check_gate, parse_gate
from leadline.stats.observations import FloatArray, Observations, observations
from support.planted import archetype, candidate_of, planted
from support.planted_runs import planted_record

RNG = np.random.default_rng


def flat(score: float) -> FloatArray:
    return np.full((8, 11), score)


# --- tests and corrections ----------------------------------------------------------------------


@pytest.mark.parametrize(("lost", "gained"), [(8, 2), (1, 6), (15, 15), (0, 0), (0, 5)])
def test_mcnemars_mid_p_is_the_exact_p_less_half_the_last_term(lost: int, gained: int) -> None:
    (found,) = mcnemar_midp(np.array([lost]), np.array([gained]))
    if lost == gained:
        assert found == 1.0
        return
    n = lost + gained
    exact = binomtest(min(lost, gained), n, 0.5, alternative="less")
    point = exact.pvalue - (
        binomtest(min(lost, gained) - 1, n, 0.5, alternative="less").pvalue if min(lost, gained) else 0
    )
    assert found == pytest.approx(2 * exact.pvalue - point)


def test_sign_flips_agree_with_scipys_permutation_test() -> None:
    def total(values: FloatArray, axis: int) -> FloatArray:
        return np.asarray(np.sum(values, axis=axis))

    few, many = RNG(0).normal(0.4, 1, size=10), RNG(1).normal(0.3, 1, size=60)
    for values, tolerance in ((few, 1e-9), (many, 0.02)):
        theirs = permutation_test((values,), total, permutation_type="samples", n_resamples=5000, rng=3)
        assert sign_flip_p(values[:, None], 5000, RNG(2))[0] == pytest.approx(theirs.pvalue, abs=tolerance)


def test_holms_correction_keeps_the_order() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.005])
    assert holm(p) == pytest.approx([0.03, 0.06, 0.06, 0.02])


# --- pairing and comparing ----------------------------------------------------------------------


def test_only_prompts_of_both_runs_are_paired_and_failures_are_counted() -> None:
    base = planted(flat(0.9), 4, RNG(0))
    candidate = base.take(base.sample < 3)
    failed = np.zeros(len(candidate), dtype=np.bool_)
    failed[:5] = True
    candidate = replace(candidate, failed=failed, value=np.where(failed, np.nan, candidate.value))
    pairs = pair(base, candidate.take(RNG(1).permutation(len(candidate))))
    assert (len(pairs), pairs.only_base, pairs.only_candidate, pairs.failed) == (264 - 5, 88, 0, 5)
    assert (pairs.base.value == pairs.candidate.value).all()
    zero = pair(base, candidate, failures="zero")
    assert (len(zero), zero.failed) == (264, 0)


def test_equal_runs_have_no_difference_but_are_not_certain() -> None:
    base = planted(flat(0.9), 5, RNG(0))
    made = compare(pair(base, base))
    assert made.overall.estimate.mean == 0
    assert made.overall.estimate.interval.low == pytest.approx(-made.overall.estimate.interval.high)
    assert 0.002 < made.overall.estimate.interval.high < 0.01
    assert {d.verdict for d in made.differences} == {"not significant"}
    assert {d.verdict for d in made.cells} == {"described only"}


def test_a_loss_at_one_length_is_found_there_and_nowhere_else() -> None:
    rng = RNG(3)
    surface = flat(0.95)
    base = planted(surface, 10, rng)
    worse = surface.copy()
    worse[7] = 0.6
    made = compare(pair(base, candidate_of(base, worse, rng, redrawn=1.0)))
    verdicts = {d.name: d.verdict for d in made.of("length")}
    assert verdicts["length:512k"] == "worse"
    assert set(verdicts.values()) == {"worse", "not significant"}
    assert made.of("length")[0].test == "mcnemar mid-p"


def test_shared_documents_are_tested_by_sign_flips() -> None:
    rng = RNG(4)
    base = planted(flat(0.9), 8, rng, reading="shared", correlation=0.3)
    made = compare(pair(base, candidate_of(base, flat(0.6), rng, redrawn=1.0)), resamples=500)
    assert made.overall.test == "sign flips by document"
    assert made.overall.verdict == "worse"
    assert made.overall.estimate.n_clusters == 64


@pytest.mark.slow
def test_the_interval_of_a_difference_covers_it() -> None:
    rng = RNG(5)
    held = []
    for _ in range(40):
        first = archetype("smooth decay", rng)
        second = np.clip(first - 0.1, 0.01, 0.99)
        base = planted(first, 5, rng)
        made = compare(pair(base, candidate_of(base, second, rng, redrawn=1.0)))
        truths = [second.mean() - first.mean(), *(second - first).mean(axis=1)]
        held += [d.estimate.interval.holds(t) for d, t in zip(made.differences[:9], truths, strict=True)]
    assert 0.92 <= np.mean(held) <= 0.99


def test_scores_off_the_unit_scale_compare_too() -> None:
    base = planted(flat(0.5), 5, RNG(0))
    nats = replace(base, value=RNG(1).normal(2.0, 0.5, len(base)))
    made = compare(pair(nats, replace(nats, value=nats.value - 1.5 + RNG(2).normal(0, 0.1, len(base)))), resamples=500)
    assert made.overall.estimate.interval.high < -1.4
    assert made.overall.verdict == "worse"


def test_nothing_in_common_is_refused() -> None:
    base = planted(flat(0.5), 2, RNG(0))
    with pytest.raises(UsageError, match="no answered prompt in common"):
        compare(pair(base, replace(base, sample=base.sample + 9)))


@pytest.mark.slow
def test_equal_models_rarely_raise_an_alarm() -> None:
    rng = RNG(6)
    alarms = 0
    for _ in range(60):
        surface = archetype("lost in the middle", rng)
        base = planted(surface, 3, rng)
        made = compare(pair(base, candidate_of(base, surface, rng)))
        alarms += any(d.verdict != "not significant" for d in made.differences)
    assert alarms <= 6


# --- the gate -----------------------------------------------------------------------------------


def test_a_gate_reads_as_written() -> None:
    clauses = parse_gate("overall >= -1; task:* >= -3; length:128k >= -5pt; effective >= -10%")
    assert [(c.subject, c.pattern, round(c.bound, 4), c.relative) for c in clauses] == [
        ("overall", "", -0.01, False),
        ("task", "*", -0.03, False),
        ("length", "128k", -0.05, False),
        ("effective", "", -0.1, True),
    ]


@pytest.mark.parametrize("text", ["", "overall > -1", "speed >= 3", "effective >= -10", "overall >= minus one"])
def test_a_gate_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_gate(text)


def test_a_member_of_a_sweep_can_be_named_in_a_gate() -> None:
    rng = np.random.default_rng(0)
    members = [planted(np.full((8, 11), 0.9), 5, rng, task=f"niah[hops={n}]") for n in (2, 4)]
    base = members[0].joined(members[1])
    for text, names in (
        ("task:niah[hops=2] >= -50", ["task:niah[hops=2]"]),
        ("task:niah* >= -50", ["task:niah[hops=2]", "task:niah[hops=4]"]),
    ):
        assert [check.name for check in check_gate(pair(base, base), parse_gate(text)).checks] == names


def test_an_unknown_part_names_the_known_ones() -> None:
    base = planted(flat(0.9), 2, RNG(0))
    with pytest.raises(UsageError, match="'vt'") as error:
        check_gate(pair(base, base), parse_gate("task:vt >= -3"))
    assert "task:planted" in error.value.fix


@pytest.mark.parametrize(
    ("score", "samples", "verdict", "code"), [(0.95, 30, "pass", 0), (0.7, 30, "fail", 1), (0.95, 1, "undecided", 2)]
)
def test_the_gate_passes_fails_or_says_that_it_cannot_tell(score: float, samples: int, verdict: str, code: int) -> None:
    rng = RNG(8)
    base = planted(flat(0.95), samples, rng)
    candidate = candidate_of(base, flat(score), rng, redrawn=0.1 if score == 0.95 else 1.0)
    made = check_gate(pair(base, candidate), parse_gate("overall >= -1.5; length:* >= -10"))
    assert (made.verdict, made.exit_code) == (verdict, code)
    for check in made.checks:
        assert (check.verdict == "pass") == (check.interval.low >= check.bound)


def test_an_undecided_check_says_how_many_samples_would_help() -> None:
    rng = RNG(12)
    base = planted(flat(0.9), 2, rng)
    candidate = candidate_of(base, flat(0.9), rng)
    [check] = check_gate(pair(base, candidate), parse_gate("overall >= -3")).checks
    assert check.verdict == "undecided"
    assert check.times_more is not None
    assert format_check(check).endswith(f"; about {check.times_more:.2g} times the samples would tell")
    [far] = check_gate(pair(base, candidate), parse_gate("overall >= -0.1")).checks
    assert far.times_more is not None
    assert far.times_more > 1000
    assert re.search(r"; about [1-9],?\d[\d,]*00 times the samples", format_check(far))
    near = replace(check, difference=-0.5)  # its whole interval lies below, but for the correction
    assert format_check(near).endswith(": undecided; a few more samples would tell")
    larger = round(2 * 2 * check.times_more)
    base = planted(flat(0.9), larger, rng)
    [again] = check_gate(pair(base, candidate_of(base, flat(0.9), rng)), parse_gate("overall >= -3")).checks
    assert again.verdict == "pass"
    assert again.times_more is None


def test_the_only_task_is_not_tested_twice() -> None:
    base = planted(flat(0.9), 2, RNG(0))
    made = compare(pair(base, base))
    assert made.of("task") == ()
    other = replace(base, task=np.full(len(base), "other"), cluster=np.char.add("other ", base.cluster))
    assert len(compare(pair(base.joined(other), base.joined(other))).of("task")) == 2


def test_per_cent_bounds_are_of_the_base_score() -> None:
    base = planted(flat(0.5), 10, RNG(0))
    [check] = check_gate(pair(base, base), parse_gate("overall >= -10%")).checks
    assert check.bound == pytest.approx(-0.1 * base.value.mean())


def test_effective_length_is_gated_by_its_relative_change() -> None:
    rng = RNG(9)
    octave = np.arange(8)[:, None]
    surface = np.where(octave < 6, 0.98, 0.1) * np.ones((1, 11))
    shorter = np.where(octave < 4, 0.98, 0.1) * np.ones((1, 11))
    base = planted(surface, 10, rng)
    same = check_gate(pair(base, candidate_of(base, surface, rng)), parse_gate("effective >= -10%"))
    assert same.verdict == "pass"
    fallen = check_gate(pair(base, candidate_of(base, shorter, rng, redrawn=1.0)), parse_gate("effective >= -10%"))
    assert fallen.verdict == "fail"
    assert fallen.checks[0].difference == pytest.approx(-0.75, abs=0.01)
    [check] = fallen.checks
    lengths = f"{format_tokens(check.base)} to {format_tokens(check.candidate)} by interpolation"
    assert f"), {lengths}, bound -10.0%: fail" in format_check(check)


@pytest.mark.slow
def test_a_gate_may_be_asked_again_and_again() -> None:
    rng = RNG(10)
    clauses = parse_gate("overall >= 0; length:* >= 0")
    false = 0
    for _ in range(40):
        base = planted(flat(0.8), 16, rng)
        candidate = candidate_of(base, flat(0.8), rng)
        looks = [check_gate(pair(base.take(base.sample < k), candidate), clauses, anytime=True) for k in (2, 4, 8, 16)]
        false += any(look.verdict == "fail" for look in looks)
    assert false <= 4
    with pytest.raises(UsageError, match="while sampling"):
        check_gate(pair(base, candidate), parse_gate("effective >= -10%"), anytime=True)


def test_build_servers_and_pull_requests_get_the_verdict() -> None:
    rng = RNG(11)
    base = planted(flat(0.95), 10, rng)
    pairs = pair(base, candidate_of(base, flat(0.5), rng, redrawn=1.0))
    made = check_gate(pairs, parse_gate("overall >= -1; task:* >= -60"))
    suite = ElementTree.fromstring(junit_xml(made))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    assert suite.findall("testcase/failure")[0].get("message", "").endswith("bound -1.0: fail")
    table = gate_markdown(made)
    assert table.startswith("### Leadline gate: fail")
    assert table.count("\n| ") == 3
    assert "| overall |" in comparison_markdown(compare(pairs))


# --- comparability ------------------------------------------------------------------------------


def identity(**changes: object) -> dict[str, object]:
    spec = {
        "model": "a",
        "reading": "fresh",
        "seed": 0,
        "samples": 3,
        "lengths": [4096],
        "depths": [0.5],
        "tasks": [{"name": "niah", "label": ""}],
    }
    prints = {
        "model.tokenizer": "t1",
        "model.frame": "f1",
        "model.revision": "r1",
        "task.niah.version": "1",
        "source.prose": "d1",
    }
    for name, value in changes.items():
        if "." in name:
            prints[name] = str(value)
        else:
            spec[name] = value
    return {"spec": spec, "fingerprints": prints}


def test_another_revision_of_one_model_is_comparable() -> None:
    assert comparability(identity(), identity(model="b", **{"model.revision": "r2"})) == []


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        ({"reading": "nested"}, "refuse"), ({"seed": 1}, "refuse"), ({"task.niah.version": "2"}, "refuse"),
        ({"source.prose": "d2"}, "refuse"), ({"model.tokenizer": "t2"}, "warn"), ({"model.frame": "f2"}, "warn"),
        ({"samples": 5}, "warn"), ({"tasks": [{"name": "vt", "label": ""}]}, "warn"),
    ],
)  # fmt: skip
def test_what_changes_the_prompts_is_refused_and_the_rest_is_warned_of(
    change: dict[str, object], severity: str
) -> None:
    found = comparability(identity(), identity(**change))
    assert {o.severity for o in found} == {severity}
    assert all(o.why in str(o) for o in found)


def test_a_task_of_one_run_alone_is_no_reason_to_refuse_the_others() -> None:
    """Neither its scorers, nor a value of a sweep that looks like another one up to its decimal point."""
    both = {"task.niah[share=0.5].version": "1", "task.niah[share=0.5].share": "0.5"}
    alone = {"task.vt.version": "1", "task.vt.scorers": '["ruler.v1"]', "task.niah[share=0.7].share": "0.7"}
    assert comparability(identity(**both), identity(**both, **alone)) == []
    (found,) = comparability(identity(**both), identity(**both, **{"task.niah.scorers": '["ruler.v1"]'}))
    assert found.severity == "refuse"


FRAME = {"before": "<user>", "after": "<bot>", "form": "chat", "prefill": True, "system": "", "extra_tokens": 0}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"prefill": False}, ["place of the answer prefix differs (begins the answer / ends the question)"]),
        ({"after": "<bot><think>"}, ["chat template differs (f1 / f2)"]),
        ({"form": "completion", "before": "", "after": ""}, ["form of the prompt differs (chat / completion)"]),
        ({"extra_tokens": 3}, ["number of tokens that the server adds differs (0 / 3)"]),
        (
            {"prefill": False, "system": "Be kind."},
            ["chat template differs (f1 / f2)", "place of the answer prefix differs (begins the answer / ends"],
        ),
        ({}, []),  # two engines that make fingerprints of one text in their own ways
    ],
)
def test_what_differs_around_a_question_is_told_by_name(change: dict[str, object], told: list[str]) -> None:
    one, other = ({"model.frame": f, "model.template": f} for f in ("f1", "f2"))
    base = identity(**one) | {"frame": FRAME | {"fingerprint": "f1"}}
    candidate = identity(**other) | {"frame": FRAME | {"fingerprint": "f2"} | change}
    found = comparability(base, candidate)
    assert [str(o).startswith(words) for o, words in zip(found, told, strict=True)] == [True] * len(told)


def test_a_template_known_by_two_names_is_warned_of_once() -> None:
    one, other = ({"model.frame": f, "model.template": f} for f in ("f1", "f2"))
    assert [o.what for o in comparability(identity(**one), identity(**other))] == ["chat template"]


# --- one mean for difference, interval, test and verdict; documents are counted, not prompts


def unequal_pair(rng: np.random.Generator, lost: float, gained: float) -> tuple[Observations, Observations]:
    """Two cells, as a run that stops by itself leaves them: 200 samples at 4k, 10 at 64k. The candidate loses a share
    of the first and gains a share of the second."""
    length = np.repeat([4096, 65536], [200, 10])
    sample = np.concatenate([np.arange(200), np.arange(10)])
    chance = np.where(length == 4096, lost, gained)
    before = (length == 4096).astype(np.float64)
    after = np.where(rng.random(210) < chance, 1 - before, before)
    names = np.arange(210).astype(np.str_)
    first = Observations(
        task=np.full(210, "t"), length=length, depth=np.full(210, 0.5), sample=sample, cluster=names, value=before,
        failed=np.zeros(210, dtype=np.bool_),
    )  # fmt: skip
    return first, replace(first, value=after)


@pytest.mark.slow
def test_the_test_is_about_the_mean_that_is_reported() -> None:
    """Prompt by prompt the candidate lost many; cell by cell it gained. Verdict and interval say one thing."""
    rng = np.random.default_rng(0)
    for lost, gained in ((0.1, 0.3), (0.2, 0.2), (0.15, 0.5), (0.05, 0.1)):
        for _ in range(20):
            [whole] = [d for d in compare(pair(*unequal_pair(rng, lost, gained))).differences if d.scope == "overall"]
            assert whole.estimate.mean == pytest.approx(whole.candidate - whole.base)
            if whole.verdict in ("better", "worse"):
                assert whole.estimate.interval.low > 0 or whole.estimate.interval.high < 0
            if whole.estimate.interval.low > 0.02:
                assert whole.p < 0.2


@pytest.mark.parametrize("documents", [3, 5, 8])
def test_a_gate_counts_documents_and_does_not_pass_on_few(documents: int) -> None:
    """A fifth of the documents is lost whole; a gate that allows three points must not pass for lack of seeing one."""
    rng = np.random.default_rng(1)
    passed = 0
    for _ in range(60):
        base = planted(np.full((8, 11), 0.97), documents, rng, reading="nested")
        whole = rng.random(documents) < 0.2
        names = np.unique(base.cluster)
        gone = np.isin(base.cluster, names[whole])
        result = check_gate(
            pair(base, replace(base, value=np.where(gone, 0.0, base.value))), parse_gate("overall >= -3")
        )
        assert result.documents == documents
        passed += result.verdict == "pass"
    assert passed / 60 <= 0.05


@pytest.mark.slow
def test_equal_models_do_not_differ_because_depths_share_a_haystack() -> None:
    """Documents of one haystack are no independent evidence: counted as such, equal models differ in 21 % of pairs.

    Records of four lengths and eleven depths with one haystack a length and sample. Each model has its
    own chance on each haystack (beta, correlation 0.08), so that answers and their differences are correlated in one.
    """
    rng, runs, samples, mass = np.random.default_rng(8), 150, 10, 0.92 / 0.08
    cells = [Cell("niah", n, d / 10, i) for n in (4096, 8192, 16384, 32768) for d in range(11) for i in range(samples)]
    base = observations(
        msgspec.structs.replace(planted_record(c, 1.0), cluster=f"niah/{c.length}/{c.sample}") for c in cells
    )
    _, haystack = np.unique(base.cluster, return_inverse=True)

    def answers() -> FloatArray:
        chance = rng.beta(0.8 * mass, 0.2 * mass, size=4 * samples)
        return (rng.random(len(haystack)) < chance[haystack]).astype(np.float64)

    different = failed = 0
    for _ in range(runs):
        pairs = pair(replace(base, value=answers()), replace(base, value=answers()))
        found = compare(pairs, resamples=400)
        assert found.documents == 4 * samples
        different += any(d.verdict in ("better", "worse") for d in found.differences)
        failed += check_gate(pairs, parse_gate("overall >= 0; length:* >= 0")).verdict == "fail"
    assert different <= 0.06 * runs
    assert failed <= 0.08 * runs


def test_few_documents_are_said_to_be_few() -> None:
    base = planted(np.full((8, 11), 0.97), 3, np.random.default_rng(1), reading="nested")
    text = gate_markdown(check_gate(pair(base, base), parse_gate("overall >= -3")))
    assert "264 paired prompts (3 documents: too few to rely on)" in text


def test_the_root_of_a_singular_correlation_does_not_depend_on_the_choice_of_eigenvectors() -> None:
    """Two pairs of means that move together: each eigenspace has two dimensions, and any basis of it would do."""
    covariance: FloatArray = np.array(np.kron(np.eye(2), np.ones((2, 2))) * 0.04, dtype=np.float64)
    root = _root_of_correlation(covariance)
    assert np.allclose(root, root.T)
    assert np.allclose(root.T @ root, covariance / 0.04)
    swap = [2, 3, 0, 1]
    assert np.allclose(_root_of_correlation(covariance[np.ix_(swap, swap)]), root[np.ix_(swap, swap)])


# --- documents in unequal numbers: degrees of freedom from the part that carries the variance


def equal_models(
    documents: list[int], noisy: list[int], nested: bool, rng: np.random.Generator
) -> tuple[Observations, Observations]:
    """Two equal models over five depths of each length; partial scores shift by document, much at noisy lengths. Nested
    documents serve all lengths up to their own."""
    rows = [(k, depth, d) for k, count in enumerate(documents) for d in range(count) for depth in range(5)]
    length, depth, sample = (np.array(column) for column in zip(*rows, strict=True))
    document = sample if nested else sample + 100 * length
    base = np.clip(0.5 + 0.1 * rng.standard_normal(len(rows)), 0, 1)
    shift = rng.standard_normal(1000)[document] * np.where(np.isin(length, noisy), 0.25, 0.03)
    first = Observations(
        task=np.full(len(rows), "t"),
        length=4096 * 2**length,
        depth=depth / 4,
        sample=sample,
        cluster=document.astype(np.str_),
        value=base,
        failed=np.zeros(len(rows), dtype=np.bool_),
    )
    return first, replace(first, value=np.clip(base + shift + 0.02 * rng.standard_normal(len(rows)), 0, 1))


def test_degrees_of_freedom_come_from_the_documents_that_carry_the_variance() -> None:
    nested = group_pairs(pair(*equal_models([12, 3, 3, 3], [1, 2, 3], True, np.random.default_rng(0))), "overall")
    assert nested.means.degrees[0] == 11
    assert nested.error(0).degrees < 3, "three documents reach the noisy lengths"
    own = group_pairs(pair(*equal_models([12, 3, 3, 3], [0, 1, 2, 3], False, np.random.default_rng(0))), "overall")
    assert own.error(0).degrees < 8 < own.means.degrees[0]
    even = group_pairs(pair(*equal_models([6, 6, 6, 6], [0, 1, 2, 3], True, np.random.default_rng(0))), "overall")
    assert even.error(0).degrees == 5, "documents that all serve the same lengths are one part"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("documents", "noisy"),
    [
        ([12, 3, 3, 3], [0, 1, 2, 3]),
        ([12, 3, 3, 3], [1, 2, 3]),
        ([12, 3, 3, 3], [3]),
        ([25, 5, 5, 3], [3]),
        ([5, 5, 5, 5], [1, 2, 3]),
        ([3, 3, 12, 12], [0, 1, 2, 3]),
    ],
    ids=str,
)
@pytest.mark.parametrize("nested", [True, False], ids=["nested", "own documents"])
def test_differences_of_equal_models_cover_zero_with_unequal_documents(
    documents: list[int], noisy: list[int], nested: bool
) -> None:
    """250 pairs: a standard error of 1.4 points at 95 %. Of the difference overall, before a correction for other
    differences hides how often its p-value is small; those would take four fifths of the time."""
    rng, covered, different = np.random.default_rng(11), 0, 0
    for _ in range(250):
        [overall] = _differences(pair(*equal_models(documents, noisy, nested, rng)), "overall", 200)
        covered += overall.estimate.interval.low <= 0 <= overall.estimate.interval.high
        different += overall.p < 0.05
    assert covered >= 0.92 * 250
    assert different <= 0.07 * 250
