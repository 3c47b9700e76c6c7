"""Spelling numbers without lying, and strangers' text without harm."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.core.format import format_duration, format_length, format_number, format_percent, sanitise, shorten


@pytest.mark.parametrize(
    ("tokens", "words"),
    [(512, "512"), (1024, "1k"), (1536, "1.5k"), (5000, "5000"), (131072, "128k"), (100_000, "100,000"), (2**20, "1m")],
)
def test_lengths_are_spelled_as_they_are_typed(tokens: int, words: str) -> None:
    assert format_length(tokens) == words


def test_a_share_is_never_rounded_to_all_or_nothing() -> None:
    assert format_percent(1.0) == "100"
    assert format_percent(0.9999) == "99.9"
    assert format_percent(0.0) == "0"
    assert format_percent(0.0003) == "0.1"
    assert format_percent(2 / 3) == "67"
    assert format_percent(None) == "–"


@given(st.floats(0, 1))
def test_only_the_ends_are_spelled_as_the_ends(share: float) -> None:
    assert (format_percent(share) == "100") == (share == 1)
    assert (format_percent(share) in ("0", "0.0")) == (share == 0)


def test_escapes_of_a_terminal_become_visible() -> None:
    assert sanitise("\x1b[31mred\x1b[0m\a") == "\\x1b[31mred\\x1b[0m\\x07"
    assert sanitise("a\nb\tc\r") == "a\\nb\\tc\\r"
    assert sanitise("safe \u202egnp.exe") == "safe \\u202egnp.exe"


@given(st.text())
def test_no_control_character_survives(text: str) -> None:
    assert all(unicodedata.category(c)[0] != "C" for c in sanitise(text))


def test_long_text_keeps_its_beginning_and_its_end() -> None:
    cut = shorten("a" * 900 + "b" * 100, 100)
    assert cut.startswith("a" * 75 + " […")
    assert cut.endswith("…] " + "b" * 25)
    assert "900 characters" in cut
    assert shorten("short", 100) == "short"


def test_big_numbers_and_durations_read_aloud() -> None:
    assert format_number(999) == "999"
    assert format_number(7_823_000) == "7.82 million"
    assert format_duration(4.21) == "4.2 s"
    assert format_duration(3 * 3600 + 125) == "3 h 02 min"
