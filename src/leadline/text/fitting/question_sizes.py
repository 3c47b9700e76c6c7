"""The tokens of questions by a provider's counts. One count finds the sizes of several questions.

A counted text holds each question another number of times: 1, b, b², ... Where a tokenizer adds up, its count is the
sum of their sizes so weighted, and how far it is off from what was expected has the difference of each question as a
digit in base b. Only differences between questions are used, so what joins the copies does not matter as long as it is
always the same.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

CountText = Callable[[str], int | None]
"""The provider's count of a text as a prompt of its own."""
JOINT = " ."
"""Between copies, as between a document that is filled with dots and its question."""
FIRST_SLOPE = 0.4
"""Tokens for each character, before enough were counted."""
PASSES = 2
"""Rounds for a document's questions: sizes in doubt are counted once more, with a wider range."""
COPIES = 3
"""Copies of the first question, which show the tokens of a prompt beyond its text."""
FIRST_SPREAD = 10
"""The tokens by which questions may differ from their expected size, before enough were counted."""
ENOUGH = 8
REMEMBERED = 64
"""The last questions, which show how much sizes differ."""
MARGIN = 2
"""The range exceeds the largest observed difference by this."""
MOST_TOKENS = 24_576
"""Of a text that is counted."""


@dataclass
class QuestionSizes:
    """The sizes that one model's provider gave. Used by many threads."""

    count: CountText
    most_tokens: int = MOST_TOKENS
    known: dict[str, int] = field(default_factory=dict)
    """By text, its tokens with a joint."""
    adds_up: bool = True
    """Whether copies of a text have as many tokens each; else no size is found here."""
    _beside: int = 0
    """Tokens of a prompt beyond its text."""
    _differences: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def learn(self, texts: Sequence[str]) -> int:
        """Finds the sizes that are not known, except where a count leaves them in doubt; returns its counts."""
        counts = 0
        with self._lock:
            missing = [text for text in dict.fromkeys(texts) if text not in self.known]
            if missing and not self.known and self.adds_up:
                counts += 2
                self._begin(missing.pop(0))
            for _ in range(PASSES if self.adds_up else 0):
                while missing:
                    weighted = self._weighted(missing)
                    counts += 1
                    self._decode(weighted, self.count(_copies(weighted)))
                    missing = missing[len(weighted) :]
                missing = [text for text in dict.fromkeys(texts) if text not in self.known]
        return counts

    def _begin(self, text: str) -> None:
        alone, several = self.count(_copies([(text, 1)])), self.count(_copies([(text, COPIES)]))
        size, rest = divmod((several or 0) - (alone or 0), COPIES - 1)
        self.adds_up = alone is not None and several is not None and size > 0 and not rest
        if self.adds_up and alone is not None:
            self.known[text] = size
            self._beside = alone - size

    def _expected(self, text: str) -> int:
        """From the characters and tokens of known texts, on a line where they differ enough."""
        known = list(self.known.items())[-REMEMBERED:]
        characters = np.array([len(text) for text, _ in known], float)
        tokens = np.array([size for _, size in known], float)
        variance = float(np.var(characters)) if len(known) >= ENOUGH else 0.0
        slope = float(np.cov(characters, tokens, bias=True)[0, 1]) / variance if variance else FIRST_SLOPE
        return max(1, round(float(tokens.mean()) + slope * (len(text) - float(characters.mean()))))

    @property
    def _spread(self) -> int:
        enough = len(self._differences) >= ENOUGH
        return max(map(abs, self._differences)) + MARGIN if enough else FIRST_SPREAD

    def _weighted(self, texts: Sequence[str]) -> list[tuple[str, int]]:
        """The first texts, as many as fit into one count, each with its number of copies."""
        weighted, tokens, base = [(texts[0], 1)], self._expected(texts[0]), 2 * self._spread + 1
        for text in texts[1:]:
            weight = weighted[-1][1] * base
            tokens += weight * self._expected(text)
            if tokens > self.most_tokens:
                break
            weighted.append((text, weight))
        return weighted

    def _decode(self, weighted: Sequence[tuple[str, int]], total: int | None) -> None:
        """The digits of the difference. One at the end of its range may be beyond it, and then the next is wrong."""
        if total is None:
            return
        expected = [self._expected(text) for text, _ in weighted]
        rest = total - self._beside - sum(size * weight for size, (_, weight) in zip(expected, weighted, strict=True))
        spread, differences = self._spread, []
        for _ in weighted[1:]:
            digit = (rest + spread) % (2 * spread + 1) - spread
            differences.append(digit)
            rest = (rest - digit) // (2 * spread + 1)
        differences.append(rest)
        if len(weighted) > 1 and abs(rest) > spread:
            self._differences.append(FIRST_SPREAD)  # the range was too small
            return
        self._differences.extend(differences)
        doubtful = {i for i, off in enumerate(differences) if len(weighted) > 1 and abs(off) == spread}
        doubtful |= {i + 1 for i in doubtful}
        decoded = zip(weighted, expected, differences, strict=True)
        self.known |= {text: size + off for i, ((text, _), size, off) in enumerate(decoded) if i not in doubtful}


def different_parts(texts: Sequence[str]) -> list[str]:
    """The texts without the words that all begin and end with."""
    words = [re.findall(r"\s*\S+|\s+", text) for text in texts]
    least = min(map(len, words))
    first = next((i for i in range(least) if len({word[i] for word in words}) > 1), least)
    last = next((i for i in range(least - first) if len({word[-1 - i] for word in words}) > 1), least - first)
    return ["".join(word[first : len(word) - last]) for word in words]


def _copies(weighted: Sequence[tuple[str, int]]) -> str:
    return "".join((JOINT + text) * weight for text, weight in weighted)
