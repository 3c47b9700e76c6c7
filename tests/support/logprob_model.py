"""A model whose token NLLs follow a rule, so that every metric can be computed by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pytest

from leadline.core.answers import Answer, Failure
from leadline.core.contracts import ModelCard, Tokenizer
from leadline.core.spec import Spec, make_spec
from leadline.core.types import Continuation, Document, Frame, Probe, TokenNLL
from leadline.run import plan as planning
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import open_tokenizer

Rule = Callable[[list[int], int], float]
"""From the tokens before one, and that token, to nats."""


class RuleLogprobModel:
    """Gives the NLLs of its rule, and keeps the size of every passage that it was given."""

    def __init__(
        self,
        rule: Rule,
        *,
        beginning: str = "",
        fails: Callable[[int], bool] = lambda tokens: False,
        tokenizer: str = "whitespace",
    ) -> None:
        self.rule = rule
        self.fails = fails
        self.card = ModelCard(name="rule", fingerprints={"dtype": "float64"})
        self.tokenizer: Tokenizer = open_tokenizer(tokenizer)
        self.frame: Frame = completion_frame()
        self.plain: Frame = completion_frame(beginning)
        self.asked_per: Literal["probe", "document"] = "document"
        self.calls: list[tuple[int, int, int]] = []
        """Tokens, continuations and spans of each call."""

    def nll(
        self, ids: np.ndarray, continuations: Sequence[Continuation] = (), spans: Sequence[tuple[int, int]] = ()
    ) -> TokenNLL | Failure:
        self.calls.append((len(ids), len(continuations), len(spans)))
        if self.fails(len(ids)):
            return Failure("out_of_memory", "no room")
        rows = []
        for c in continuations:
            text = [*ids[: c.cut].tolist(), *c.ids.tolist()]
            rows.append(self._nats(text, range(c.cut + c.start, len(text))))
        whole = ids.tolist()
        return TokenNLL(tuple(rows), tuple(self._nats(whole, range(a, b)) for a, b in spans), notes=("by a rule",))

    def _nats(self, text: list[int], places: range) -> np.ndarray:
        return np.array([self.rule(text[:place], text[place]) for place in places], np.float64)

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        raise AssertionError("nothing is to be asked")

    def close(self) -> None:
        pass


def use(monkeypatch: pytest.MonkeyPatch, model: object) -> None:
    """Have runs open this model, whatever the spec names."""
    monkeypatch.setattr(planning, "open_model", lambda spec, **_: model)


def remembers(before: list[int], token: int) -> float:
    """1.1 nats for a token that followed the same two tokens before, else 3.2."""
    last = before[-2:]
    seen = any(before[i : i + 2] == last and before[i + 2] == token for i in range(len(before) - 2))
    return 1.1 if seen else 3.2


def spec(task: str = "retrieval_gain", **values: Any) -> Spec:
    options = values.pop("options", {})
    base = {"model": "sim:perfect", "lengths": "256", "depths": (0.1, 0.6), "samples": 3}
    return make_spec({**base, "tasks": [{"name": task, "least": 64, **options}], **values})
