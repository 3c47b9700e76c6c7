"""A quick part of the sweep of tests/support/exact_lengths.py: every family, five tokenizers, templates in turn."""

from __future__ import annotations

import pytest

from support.exact_lengths import FAMILIES, TOKENIZERS, sweep


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_every_family_has_exactly_the_length_asked_for(tokenizer: str) -> None:
    found = dict(sweep((2048, 3331), (tokenizer,), tuple(FAMILIES)))
    assert len(found) == 2
    for counts in found.values():
        assert not counts.wrong
        assert counts.exact + len(counts.too_short) == len(FAMILIES)
        assert counts.exact >= len(FAMILIES) - 4
