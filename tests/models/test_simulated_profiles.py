"""The profile of a simulated model is recovered from its records."""

from __future__ import annotations

from collections import defaultdict

import pytest
from scipy.stats import binomtest, chi2

from leadline.core.errors import UnknownName
from leadline.core.types import Document
from leadline.models.sim.model import ARCHETYPES, SHAPES, Profile, success_probability
from leadline.scorers.match import ALL
from leadline.tasks.niah import Needle
from support.simulated_grid import needle_documents, open_simulated, reply, scored

LENGTHS = (256, 512, 1024, 2048)
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
SAMPLES = 24
WINDOW = Profile(window=700)
READERS = [a for a in SHAPES if a != "flaky"]  # which reads as the perfect one does

VALUES = [
    # archetype, length, depth, options, chance
    ("perfect", 10**6, 0.5, {}, 1.0),
    ("perfect", 100, 0.5, {"high": 0.9}, 0.9),
    ("perfect", 100, 0.5, {"noise": 0.25}, 0.75),
    ("cliff", 8192, 0.5, {}, 1.0),
    ("cliff", 8193, 0.5, {}, 0.0),
    ("cliff", 8193, 0.5, {"low": 0.1}, 0.1),
    ("cliff", 8000, 0.0, {"window": 7999}, 0.0),
    ("lost-in-the-middle", 8192, 0.0, {}, 1.0),
    ("lost-in-the-middle", 8192, 1.0, {}, 1.0),
    ("lost-in-the-middle", 8192, 0.5, {}, 0.2),
    ("lost-in-the-middle", 8192, 0.25, {}, 0.4),
    ("lost-in-the-middle", 2048, 0.5, {}, 0.6),
    ("lost-in-the-middle", 512, 0.5, {}, 1.0),
    ("lost-in-the-middle", 8192, None, {}, 1 - 0.8 * 2 / 3),
    ("decay", 8192, 0.5, {}, 0.5),
    ("decay", 4096, 0.1, {}, 0.8),
    ("decay", 16384, 0.9, {}, 0.2),
    ("decay", 16384, 0.9, {"slope": 1}, 1 / 3),
    ("floor", 8192, 0.5, {}, 0.8),
    ("floor", 16384, 0.5, {}, 0.68),
    ("floor", 10**9, 0.5, {}, 0.6),
    ("recency", 16384, 0.5, {}, 1.0),
    ("recency", 16384, 0.49, {}, 0.0),
    ("recency", 16384, None, {}, 0.5),
    ("flaky", 100, 0.5, {}, 1.0),
    ("refuses", 100, 0.5, {}, 0.0),
    ("empty", 100, None, {}, 0.0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "last"), [("needle", 8192), ("", 8192), ("tracing", 4096), ("questions", 4096), ("counting", 2048)]
)
def test_aggregation_falls_first_where_difficulty_goes_by_task(family: str, last: int) -> None:
    options = Profile(difficulty="by_task")
    found = [success_probability("cliff", length, 0.5, options, family) for length in (last, last + 1)]
    assert found == [1.0, 0.0]
    assert success_probability("cliff", 8192, 0.5, Profile(), family) == 1.0


@pytest.mark.parametrize(("archetype", "length", "depth", "options", "chance"), VALUES)
def test_the_chance_to_read_right_is_a_known_function(
    archetype: str, length: int, depth: float | None, options: dict[str, float], chance: float
) -> None:
    given = success_probability(archetype, length, depth, Profile.model_validate(options))
    assert given == pytest.approx(chance, abs=2e-4)


@pytest.mark.parametrize("archetype", ARCHETYPES)
def test_a_chance_lies_between_0_and_1_everywhere(archetype: str) -> None:
    for length in (1, 500, 8192, 10**7):
        for depth in (None, 0.0, 0.3, 1.0):
            assert 0 <= success_probability(archetype, length, depth, Profile(high=0.97, noise=0.02)) <= 1


def test_an_archetype_that_does_not_exist_has_no_chance() -> None:
    with pytest.raises(UnknownName):
        success_probability("cliffs", 100, 0.5, Profile())


# --- recovery -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return needle_documents(Needle(haystack="noise", keys=3), LENGTHS, DEPTHS, SAMPLES, seed=11)


def worst_p_value(records: list[tuple[Document, float]], archetype: str) -> float:
    """How well the mean scores of all cells fit a planted function: the smallest binomial p-value, after Bonferroni."""
    cells: dict[tuple[int, float | None], list[tuple[float, float]]] = defaultdict(list)
    for document, score in records:
        probe = document.probes[0]
        depth = document.planted(probe)[0].depth
        chance = success_probability(archetype, probe.cell.length, depth, WINDOW)
        cells[probe.cell.length, probe.cell.depth].append((score, chance))
    smallest = 1.0
    for pairs in cells.values():
        hits, chance = round(sum(s for s, _ in pairs)), sum(c for _, c in pairs) / len(pairs)
        smallest = min(smallest, float(binomtest(hits, len(pairs), min(max(chance, 0.0), 1.0)).pvalue))
    return min(1.0, smallest * len(cells))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("archetype", READERS)
def test_the_heatmap_of_an_archetype_is_recovered(archetype: str, documents: list[Document]) -> None:
    model = open_simulated(f"sim:{archetype}?window={WINDOW.window}")
    records = [(d, scored(model, d)) for d in documents]
    assert worst_p_value(records, archetype) > 0.01
    for other in READERS:
        if other != archetype:
            assert worst_p_value(records, other) < 0.01, f"records of {archetype} pass for {other}"


def test_the_whole_surface_fits_and_not_only_its_worst_cell(documents: list[Document]) -> None:
    model = open_simulated(f"sim:lost-in-the-middle?window={WINDOW.window}")
    square, spread = 0.0, 0
    for length in LENGTHS:
        here = [d for d in documents if d.probes[0].cell.length == length]
        chances = [
            success_probability("lost-in-the-middle", length, d.planted(d.probes[0])[0].depth, WINDOW) for d in here
        ]
        variance = sum(c * (1 - c) for c in chances)
        square += (sum(scored(model, d) for d in here) - sum(chances)) ** 2 / variance
        spread += 1
    assert chi2.sf(square, spread) > 0.01


def test_each_of_several_needles_is_read_by_its_own_chance() -> None:
    task = Needle(haystack="noise", values=4, spread=1.0)
    documents = needle_documents(task, [1000], [0.5], 150, seed=4)
    model = open_simulated("sim:lost-in-the-middle?window=1000")
    profile = Profile(window=1000)
    scores, expected, variance = 0.0, 0.0, 0.0
    for document in documents:
        probe = document.probes[0]
        chances = [success_probability("lost-in-the-middle", 1000, f.depth, profile) for f in document.planted(probe)]
        assert len(chances) == 4
        scores += ALL.score(probe.question, reply(model, document)).value
        expected += sum(chances) / 4
        variance += sum(c * (1 - c) for c in chances) / 16
    assert abs(scores - expected) < 3 * variance**0.5
    assert expected / len(documents) < 0.75
