"""Documents of a corpus in tokens: each is encoded once, and short ones are skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leadline.core.errors import SourceError
from leadline.text.chat import completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import ByteTokenizer

if TYPE_CHECKING:
    from leadline.core.types import Ids


class Pages:
    name, digest = "pages", "1"

    def text(self, number: int, *, tokens: int, seed: int) -> str | None:
        return f"page {number} " * (1 if number == 1 else 40) if number < 3 else None


class CountingTokenizer(ByteTokenizer):
    def __init__(self) -> None:
        self.calls = 0

    def encode(self, text: str) -> Ids:
        self.calls += 1
        return super().encode(text)


def test_a_fitter_encodes_a_document_once_and_a_new_fitter_encodes_it_again() -> None:
    tokenizer = CountingTokenizer()
    fitter = Fitter(tokenizer, completion_frame(), completion_frame())
    pages = fitter.corpus(Pages(), least=10, most=100, seed=0)
    assert pages.document(0).tokens == 100
    calls = tokenizer.calls
    assert fitter.corpus(Pages(), least=10, most=100, seed=0) is pages
    assert pages.document(0).words(0, 6) == "page 0"
    assert tokenizer.calls == calls
    other = Fitter(tokenizer, completion_frame(), completion_frame())
    assert other.corpus(Pages(), least=10, most=100, seed=0).document(0).tokens == 100
    assert tokenizer.calls > calls


def test_short_documents_are_skipped_and_too_few_is_an_error() -> None:
    pages = Fitter(ByteTokenizer(), completion_frame(), completion_frame()).corpus(Pages(), least=10, most=100, seed=0)
    assert pages.document(1).number == 2
    with pytest.raises(SourceError, match=r"has 2 documents of 10 tokens or more \(1 are shorter\), and 3 are wanted"):
        pages.document(2)
