"""Numbers are written without misleading, and untrusted text without side effects."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.core.format import (
    format_depth,
    format_duration,
    format_flops,
    format_length,
    format_number,
    format_percent,
    format_tokens,
    sanitise,
    shorten,
)


@pytest.mark.parametrize(
    ("tokens", "text"),
    [(512, "512"), (1024, "1k"), (1536, "1.5k"), (5000, "5000"), (131072, "128k"), (100_000, "100,000"), (2**20, "1m")],
)
def test_exact_lengths_are_written_as_they_are_typed(tokens: int, text: str) -> None:
    assert format_length(tokens) == text


@pytest.mark.parametrize(
    ("tokens", "text"),
    [(4400, "4.3k"), (4096, "4k"), (44_100, "43k"), (1_000_000, "977k"), (2**20, "1M")],
)
def test_estimated_lengths_are_rounded(tokens: float, text: str) -> None:
    assert format_tokens(tokens) == text


@pytest.mark.parametrize(
    ("depth", "text"), [(None, "all"), (0.125, "12.5%"), (0.9995, "99.95%"), (0.99999, "99.99%"), (1.0, "100%")]
)
def test_only_the_end_of_a_document_has_a_depth_of_100_percent(depth: float | None, text: str) -> None:
    assert format_depth(depth) == text


def test_a_share_is_never_rounded_to_all_or_nothing() -> None:
    assert format_percent(1.0) == "100"
    assert format_percent(0.9999) == "99.9"
    assert format_percent(0.0) == "0"
    assert format_percent(0.0003) == "0.1"
    assert format_percent(2 / 3) == "67"
    assert format_percent(None) == "–"


@given(st.floats(0, 1))
def test_only_exact_ends_are_written_as_0_and_100(share: float) -> None:
    assert (format_percent(share) == "100") == (share == 1)
    assert (format_percent(share) in ("0", "0.0")) == (share == 0)


def test_terminal_escapes_become_visible() -> None:
    assert sanitise("\x1b[31mred\x1b[0m\a") == "\\x1b[31mred\\x1b[0m\\x07"
    assert sanitise("a\nb\tc\r") == "a\\nb\\tc\\r"
    assert sanitise("safe \u202egnp.exe") == "safe \\u202egnp.exe"


def test_text_is_cut_at_the_limit_only_where_there_is_one() -> None:
    assert sanitise("a" * 500) == "a" * 400 + "…"
    assert sanitise("a" * 500, None) == "a" * 500


@given(st.text())
def test_no_control_character_survives(text: str) -> None:
    assert all(unicodedata.category(c)[0] != "C" for c in sanitise(text))


def test_long_text_keeps_its_beginning_and_its_end() -> None:
    cut = shorten("a" * 900 + "b" * 100, 100)
    assert cut.startswith("a" * 75 + " […")
    assert cut.endswith("…] " + "b" * 25)
    assert "900 characters" in cut
    assert shorten("short", 100) == "short"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.21, "4.2 s"), (9.97, "10 s"), (45.3, "45 s"), (59.7, "1 min 00 s"), (200, "3 min 20 s"),
     (3 * 3600 + 125, "3 h 02 min"), (72 * 3600, "3.0 days")],
)  # fmt: skip
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_large_numbers_are_abbreviated() -> None:
    assert format_number(999) == "999"
    assert format_number(12_345) == "12.3 thousand"
    assert format_number(7_823_000) == "7.82 million"
    assert format_number(999_600) == "1 million"
    assert format_number(1.234e12) == "1.23 trillion"
    assert format_flops(2e12) == "2000 GFLOP/s"
    assert format_flops(9e14) == "900 TFLOP/s"
