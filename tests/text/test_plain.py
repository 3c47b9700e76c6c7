"""Shelves of plain documents: shared between runs, and never tied to a tokenizer that has gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.text.chat import completion_frame
from leadline.text.corpora import open_text_cache
from leadline.text.tokenizers import ByteTokenizer

if TYPE_CHECKING:
    from leadline.core.types import Ids


class Pages:
    name, digest = "pages", "1"

    def text(self, number: int, *, tokens: int, seed: int) -> str | None:
        return f"page {number} " * 40 if number < 3 else None


class Gone(ByteTokenizer):
    """As a server is that has been shut down since."""

    is_there = True

    def encode(self, text: str) -> Ids:
        assert self.is_there
        return super().encode(text)


def test_a_shelf_of_an_earlier_run_asks_the_tokenizer_of_this_one() -> None:
    first = Gone()
    shelf = open_text_cache(Pages(), first, completion_frame(), least=10, most=100, seed=0)
    assert shelf.document(0).tokens == 100
    first.is_there = False
    again = open_text_cache(Pages(), ByteTokenizer(), completion_frame(), least=10, most=100, seed=0)
    assert again is shelf
    assert again.document(1).words(0, 6) == "page 1"
