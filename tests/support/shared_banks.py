"""What was found out about a haystack in a tokenizer, for the next fitter in the same process.

Half of the CPU time of a small run is spent on proving again which pieces of the built-in text can be joined. Every
fitter has a bank of its own, which begins with the proofs of the one before.
"""

from __future__ import annotations

import copy
import os

from leadline.core.drafts import PieceBank
from leadline.text.fitting.bank import CountedBank, count_bank
from leadline.text.fitting.joints import ContextTokenizer
from leadline.text.tokenizers import ByteTokenizer, FileTokenizer, WhitespaceTokenizer

OF_THE_TEXT = ("_id_array", "_edge_characters", "lengths", "begins_with_space", "separator")
"""Properties of a counted bank that are worked out once and never change."""
MOST_BANKS = 24

_latest: dict[tuple[str, str], CountedBank] = {}


def count_bank_again(bank: PieceBank, context: ContextTokenizer) -> CountedBank:
    """`count_bank` that counts and proves what no fitter of this process has."""
    if "LEADLINE_CACHE" in os.environ:  # a test of the files that counts are kept in
        return count_bank(bank, context)
    key = bank.digest, context.tokenizer.fingerprint
    known = _latest.pop(key, None)
    counted = count_bank(bank, context) if known is None else _copied(known, bank, context)
    if type(context.tokenizer) in (ByteTokenizer, FileTokenizer, WhitespaceTokenizer):  # others may be gone tomorrow
        _latest[key] = counted
        while len(_latest) > MOST_BANKS:
            _latest.pop(next(iter(_latest)), None)
    return counted


def _copied(known: CountedBank, bank: PieceBank, context: ContextTokenizer) -> CountedBank:
    """A new bank with what is known, which another thread may be adding to."""
    counted = CountedBank(bank, context, known.ids, known.starts, known.clean)
    context._character_splits.update(known.context._character_splits)
    context._class_splits.update(known.context._class_splits)
    vars(counted).update({name: vars(known)[name] for name in OF_THE_TEXT if name in vars(known)})
    if "_joint_table" in vars(known):
        table = copy.copy(known._joint_table)
        table._table = table._table.copy()
        if len(table._pairs) == len(table._verdicts):  # not while pairs are added
            vars(counted)["_joint_table"] = table
    return counted
