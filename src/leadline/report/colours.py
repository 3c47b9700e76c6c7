"""The colours of results, the same in figures, terminal and pages.

`ACCURACY` runs from dark plum (0%) to pale mint (100%). Lightness increases throughout in even OKLab steps, so it works
in grey, in print and with any colour vision. `RED_GREEN`, for those who choose it, has the colours of many
published needle maps, and becomes lighter throughout as well. `DIFFERENCE` is orange for a loss and blue for a gain,
darker with size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Literal

from leadline.core.records import FailureClass

Scale = Sequence[str]
Rgb = tuple[int, int, int]

# Piecewise linear in OKLCH: lightness .20 .36 .54 .73 .93, chroma .08 .11 .105 .095 .06, hue 335 300 245 200 160.
ACCURACY: Final = (
    "#2a0324", "#38113f", "#43225e", "#463a7d", "#3f5796", "#3174a7",
    "#3291b4", "#44acbc", "#6bc6c3", "#99decc", "#c6f5da",
)  # fmt: skip
# Piecewise linear in OKLCH: lightness .34 .52 .66 .80 .92, chroma .135 .16 .14 .15 .14, hue 25 32 60 105 135.
RED_GREEN: Final = (
    "#6d030e", "#841816", "#9b291e", "#b23a26", "#c35b1f", "#cf7b26",
    "#d49618", "#d1b32a", "#cace4f", "#c3e474", "#bcfa99",
)  # fmt: skip
Palette = Literal["plum-mint", "red-green"]
PALETTES: Final[Mapping[Palette, Scale]] = {"plum-mint": ACCURACY, "red-green": RED_GREEN}
_palette: ContextVar[Palette] = ContextVar("palette", default="plum-mint")
DIFFERENCE: Final = (
    "#7f2704", "#b3470c", "#dd7430", "#f1a672", "#f8d6bd", "#f4f4f2",
    "#c9ddee", "#8fbbdd", "#5191c2", "#24679f", "#0b3f70",
)  # fmt: skip
INK: Final = "#1c2733"
PAPER: Final = "#ffffff"

# Each of these four has one use, so that the page can replace them by its own light or dark colours.
HEAD: Final = "#17212b"
TEXT: Final = "#3b4855"
MUTED: Final = "#667381"
LINE: Final = "#e1e5ea"

CLASS_COLOURS: Final[dict[FailureClass, str]] = {
    "correct": "#b9ecd6",
    "partial": "#3291b4",
    "distractor": "#e69f00",
    "not_found": "#43225e",
    "false_abstention": "#6a51a3",
    "false_alarm": "#b15928",
    "wrong": "#9a3b6b",
    "empty": "#b8bec6",
    "refused": "#cc79a7",
    "cut_off": "#f0e442",
    "wrong_format": "#8c6d31",
    "input_truncated": "#d55e00",
    "error": "#a11d33",
    "measured": "#667381",
}


def accuracy_scale() -> Scale:
    """The colours of accuracy, from 0% to 100%: those of the palette that was chosen."""
    return PALETTES[_palette.get()]


@contextmanager
def drawn_in(palette: Palette) -> Iterator[None]:
    """Inside, accuracy is drawn in these colours."""
    before = _palette.set(palette)
    try:
        yield
    finally:
        _palette.reset(before)


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
