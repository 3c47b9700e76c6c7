"""Fitting a draft in a test, with one Fitter for each tokenizer and frame, so that haystacks are counted once."""

from __future__ import annotations

from functools import lru_cache

from leadline.core.contracts import Remote, Tokenizer
from leadline.core.drafts import Draft
from leadline.core.types import Document, Frame
from leadline.text.fitting import Fitter

_tokenizers: dict[str, Tokenizer] = {}


@lru_cache(maxsize=64)
def _fitter(fingerprint: str, frame: Frame) -> Fitter:
    return Fitter(_tokenizers[fingerprint], frame)


def fit(draft: Draft, tokenizer: Tokenizer, frame: Frame) -> Document:
    if isinstance(tokenizer, Remote):  # its server may be gone in the next test
        return Fitter(tokenizer, frame).fit(draft)
    _tokenizers.setdefault(tokenizer.fingerprint, tokenizer)
    return _fitter(tokenizer.fingerprint, frame).fit(draft)
