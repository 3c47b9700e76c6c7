"""Pieces whose tokens are others when they touch: they are those of the whole text, in few calls of the tokenizer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from leadline.text.fitting.bank import CountedBank, count_bank
from leadline.text.fitting.joints import ContextTokenizer
from leadline.text.fitting.order import PieceOrder
from leadline.text.sources import open_source
from leadline.text.tokenizers import FileTokenizer, open_tokenizer
from support.exact_lengths import TOKENIZERS, opened
from support.toy_tokenizers import toy_tokenizer

if TYPE_CHECKING:
    from leadline.core.types import Ids

GOLDEN = Path(__file__).parents[1] / "golden" / "tokenizers"


class CountingContext(ContextTokenizer):
    """Counts the calls that tokenise pieces."""

    calls = 0

    def encode_pieces(self, pieces: Sequence[str]) -> list[Ids]:
        self.calls += 1
        return super().encode_pieces(pieces)


def counted(name: str, haystack: str) -> tuple[CountedBank, CountingContext]:
    context = CountingContext(opened(name))
    return count_bank(open_source(haystack).filler(seed=0).bank, context), context


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("haystack", ["agent", "code"])
@pytest.mark.parametrize("name", TOKENIZERS)
def test_groups_have_the_tokens_of_their_text_and_are_tokenised_once(name: str, haystack: str) -> None:
    bank, context = counted(name, haystack)
    for seed in (1, 2, 3):
        order = PieceOrder(bank, open_source(haystack).filler(seed=seed).arrange(1500))
        sound, calls = order.sound, context.calls
        bounds = np.concatenate(([0], sound.nonzero()[0] + 1, [1500]))
        ids, text = bank.gather_groups(order.pieces, bounds)
        assert text == "".join(bank.bank.pieces[i] for i in order.pieces.tolist())
        assert np.array_equal(ids, context.encode(text, followed=True))
        assert name == "whitespace" or sound.all() or context.calls == calls, "no group is new any more"


def test_some_thousand_joints_of_a_text_whose_joints_are_alike_are_proven_and_the_others_trusted() -> None:
    """Proving every joint would take half of the time of a small run."""
    bank, context = counted("whitespace", "prose")
    for seed in range(5):
        bank.joints(np.random.default_rng(seed).permutation(len(bank.bank.pieces))[:3000])
    assert 2000 <= bank._proven <= 8000
    calls = context.calls
    bank.joints(np.random.default_rng(5).permutation(3000))
    assert context.calls == calls


def test_two_line_breaks_before_a_digit_are_not_judged_by_one() -> None:
    """SmolLM2's tokenizer parts digits first, so that `\\n\\n` is one token before a digit and two before a letter."""
    bank, context = counted("digits", "agent")
    encode = {text: context.encode(text, followed=True) for text in ("ok.\n", "ok.\n\n", "4 rows")}
    assert bank.splits("ok.\n", encode["ok.\n"], "4 rows", encode["4 rows"])
    assert not bank.splits("ok.\n\n", encode["ok.\n\n"], "4 rows", encode["4 rows"])


@pytest.mark.parametrize("name", ["gpt2", "llama3", "digits"])
def test_every_joint_of_a_session_is_sound_where_words_are_split_first(name: str) -> None:
    bank, _ = counted(name, "agent")
    for seed in (1, 2):
        assert PieceOrder(bank, open_source("agent").filler(seed=seed).arrange(6000)).all_sound


def test_an_indentation_is_split_before_its_last_space_where_that_is_part_of_the_next_word() -> None:
    across = ContextTokenizer(open_tokenizer(str(GOLDEN / "across-words.json")))
    for context in (*(ContextTokenizer(opened(name)) for name in TOKENIZERS), across):
        assert not context.splits_characters("\n", "    ")
        if context.splits_characters("\n   ", " d"):
            for word in (" define", " x", " dust"):
                left, right = "ok:\n   ", f"{word} a"
                assert context.is_sound(left, context.encode(left), right, context.encode_between(right))


def test_special_tokens_of_a_vocabulary_do_not_stand_in_texts(tmp_path: Path) -> None:
    """Where the vocabulary itself lists `<file_qzsep>`, `e_` is still in no token of a text."""
    toy = toy_tokenizer("gpt2")
    assert isinstance(toy, FileTokenizer)
    saved = json.loads(toy.file.read_text())
    number = max(saved["model"]["vocab"].values()) + 1
    saved["model"]["vocab"]["<file_qzsep>"] = number
    for special in (True, False):
        added = {"id": number, "content": "<file_qzsep>", "special": special, "single_word": False, "lstrip": False,
                 "rstrip": False, "normalized": False}  # fmt: skip
        file = tmp_path / f"{special}.json"
        file.write_text(json.dumps({**saved, "added_tokens": [added]}))
        assert FileTokenizer(file).has_token_with("e_qzs") is not special
