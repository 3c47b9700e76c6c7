"""The colours of results, shared by figures, page and terminal.

`ACCURACY` runs from dark plum (0%) to pale mint (100%). Lightness increases throughout in even OKLab steps, so it works
in grey, in print and with any colour vision. `DIFFERENCE` is orange for a loss and blue for a gain, darker with size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leadline.core.types import FailureClass

Scale = Sequence[str]
Rgb = tuple[int, int, int]

# Piecewise linear in OKLCH: lightness .20 .36 .54 .73 .93, chroma .08 .11 .105 .095 .06, hue 335 300 245 200 160.
ACCURACY: Final = (
    "#2a0324", "#38113f", "#43225e", "#463a7d", "#3f5796", "#3174a7",
    "#3291b4", "#44acbc", "#6bc6c3", "#99decc", "#c6f5da",
)  # fmt: skip
DIFFERENCE: Final = (
    "#7f2704", "#b3470c", "#dd7430", "#f1a672", "#f8d6bd", "#f4f4f2",
    "#c9ddee", "#8fbbdd", "#5191c2", "#24679f", "#0b3f70",
)  # fmt: skip
INK: Final = "#1c2733"
PAPER: Final = "#ffffff"

CLASS_COLOURS: Final[dict[FailureClass, str]] = {
    "correct": "#b9ecd6",
    "partial": "#3291b4",
    "distractor": "#e69f00",
    "not_found": "#43225e",
    "wrong": "#9a3b6b",
    "empty": "#b8bec6",
    "refused": "#cc79a7",
    "cut_off": "#f0e442",
    "wrong_format": "#8c6d31",
    "input_truncated": "#d55e00",
    "error": "#a11d33",
    "measured": "#667381",
}


def colour_at(scale: Scale, share: float) -> str:
    """The colour at 0..1 of a scale, between its stops."""
    position = min(max(share, 0.0), 1.0) * (len(scale) - 1)
    at = min(int(position), len(scale) - 2)
    low, high = rgb_of(scale[at]), rgb_of(scale[at + 1])
    mixed = (round(a + (b - a) * (position - at)) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def rgb_of(colour: str) -> Rgb:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return red, green, blue


def ink_on(colour: str) -> str:
    """Dark or white text, whichever contrasts more (relative luminance of WCAG 2)."""
    light = luminance(colour)
    return INK if (light + 0.05) / (luminance(INK) + 0.05) > 1.05 / (light + 0.05) else PAPER


def luminance(colour: str) -> float:
    red, green, blue = (_linear(part / 255) for part in rgb_of(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(part: float) -> float:
    return float(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
