"""The scale reads in grey, in print and with any colour vision; measured, not believed.

Colour blindness is simulated with the matrices of Machado, Oliveira and Fernandes (2009) at full severity; lightness
and distances are those of OKLab (Ottosson 2020).
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest

from leadline.report.colours import (
    ACCURACY,
    CLASS_COLOURS,
    DIFFERENCE,
    PALETTES,
    RED_GREEN,
    Scale,
    accuracy_scale,
    colour_at,
    ink_on,
    luminance,
    rgb_of,
)
from leadline.results.table import FAILURE_CLASSES
from support.commands import Say
from support.planted_runs import decay, planted_records, write_run

Lab = tuple[float, float, float]
Matrix = tuple[Lab, Lab, Lab]
SEEN: dict[str, Matrix] = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def oklab(colour: str, eyes: Matrix) -> Lab:
    parts = [p / 255 for p in rgb_of(colour)]
    light = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    red, green, blue = (max(0.0, sum(m * v for m, v in zip(row, light, strict=True))) for row in eyes)
    l_ = math.cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue)
    m_ = math.cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue)
    s_ = math.cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue)
    return (
        0.2104542553 * l_ + 0.7936177850 * m_ - 0.0040720468 * s_,
        1.9779984951 * l_ - 2.4285922050 * m_ + 0.4505937099 * s_,
        0.0259040371 * l_ + 0.7827717662 * m_ - 0.8086757660 * s_,
    )


@pytest.mark.parametrize("scale", PALETTES.values(), ids=PALETTES.keys())
@pytest.mark.parametrize("eyes", SEEN.values(), ids=SEEN.keys())
def test_more_right_is_always_lighter(eyes: Matrix, scale: Scale) -> None:
    lights = [oklab(colour_at(scale, i / 50), eyes)[0] for i in range(51)]
    assert all(a < b for a, b in pairwise(lights))


def test_equal_steps_of_accuracy_look_equal() -> None:
    steps = [math.dist(oklab(a, SEEN["all cones"]), oklab(b, SEEN["all cones"])) for a, b in pairwise(ACCURACY)]
    assert max(steps) < 1.35 * min(steps)


@pytest.mark.parametrize("eyes", SEEN.values(), ids=SEEN.keys())
def test_a_loss_and_a_gain_of_the_same_size_look_different(eyes: Matrix) -> None:
    for size in (0.1, 0.2, 0.3, 0.5):
        loss, gain = colour_at(DIFFERENCE, 0.5 - size), colour_at(DIFFERENCE, 0.5 + size)
        assert math.dist(oklab(loss, eyes), oklab(gain, eyes)) > 0.05


@pytest.mark.parametrize("scale", [ACCURACY, RED_GREEN, DIFFERENCE], ids=["accuracy", "red-green", "difference"])
def test_numbers_are_readable_on_every_colour(scale: Scale) -> None:
    for i in range(101):
        colour = colour_at(scale, i / 100)
        lights = sorted((luminance(colour), luminance(ink_on(colour))))
        assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 3.9, colour


def test_the_ends_of_a_scale_are_its_ends() -> None:
    assert colour_at(ACCURACY, 0) == ACCURACY[0]
    assert colour_at(ACCURACY, 1) == ACCURACY[-1]
    assert colour_at(ACCURACY, 0.5) == ACCURACY[5]
    assert colour_at(ACCURACY, 7) == ACCURACY[-1]


def test_a_report_is_drawn_in_the_palette_that_is_chosen(say: Say, tmp_path: Path) -> None:
    records = list(planted_records(decay, lengths=[1024, 2048], depths=[0.0, 1.0], samples=3))
    folder = str(write_run(tmp_path / "run", records, samples=3))
    figures, cards = [], []
    for words in ([], ["--palette", "red-green"]):
        assert say("report", folder, *words).code == 0
        figures.append((tmp_path / "run/heatmap.svg").read_text())
        assert say("card", folder, "-o", "card.svg", *words).code == 0
        cards.append((tmp_path / "card.svg").read_text())
    for scale, here in ((ACCURACY, 0), (RED_GREEN, 1)):
        right = f"rgb{rgb_of(scale[-1])}"
        assert [right in figure for figure in figures] == [number == here for number in (0, 1)]
        assert [scale[-1] in card for card in cards] == [number == here for number in (0, 1)]
    assert say("report", folder, "--palette", "rainbow").code == 64
    assert accuracy_scale() == ACCURACY


def test_every_failure_class_has_a_colour_of_its_own() -> None:
    assert set(CLASS_COLOURS) == set(FAILURE_CLASSES)
    assert len(set(CLASS_COLOURS.values())) == len(FAILURE_CLASSES)
