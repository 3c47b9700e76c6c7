"""How long the rest of a run will take, from how long its answers took so far."""

from __future__ import annotations


class Pace:
    """Fits the time of an answer as a fixed part and a part for every token, by least squares over all answers.

    Long prompts come first, so neither alone would do: by tokens, a run whose answers all take the same time seems to
    be nearly over when half of it is to come; by samples, one that reads for minutes seems to have days to go. What
    the answers took together over the time that went by is how many were asked at once.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self._count = 0
        self._seconds = 0.0
        self._squares = 0.0
        self._products = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        self._count += 1
        self.tokens += tokens
        self._seconds += seconds
        self._squares += float(tokens) ** 2
        self._products += tokens * seconds

    def left(self, samples: int, tokens: int, elapsed: float) -> float | None:
        """Seconds for so many samples of so many tokens together; None before the first answer."""
        if not self._count or elapsed <= 0:
            return None
        if self._seconds <= 0:  # answers that take no time say nothing: the clock must do
            return tokens * elapsed / self.tokens if self.tokens else samples * elapsed / self._count
        fixed, each = self._fit()
        return (fixed * samples + each * tokens) * elapsed / self._seconds

    def _fit(self) -> tuple[float, float]:
        """Seconds an answer, and seconds a token; neither is below nothing."""
        spread = self._count * self._squares - self.tokens**2
        by_tokens = self._seconds / self.tokens if self.tokens else 0.0
        if spread <= 1e-9 * self._count * self._squares:  # one length so far
            return 0.0, by_tokens
        each = (self._count * self._products - self.tokens * self._seconds) / spread
        fixed = (self._seconds - each * self.tokens) / self._count
        if each < 0:
            return self._seconds / self._count, 0.0
        return (fixed, each) if fixed >= 0 else (0.0, by_tokens)
