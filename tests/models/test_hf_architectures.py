"""The contract of `hf:` models: whatever the architecture, one reading gives the plain path's answers and log-probs."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from leadline.core.types import Continuation  # noqa: E402
from leadline.models.hf.decode import generate_plain, plain_nll  # noqa: E402
from leadline.models.hf.engine import Engine, EngineRequest  # noqa: E402
from support.architectures import ARCHITECTURES, architecture  # noqa: E402
from support.tiny_models import STOP, random_ids  # noqa: E402

DOCUMENT = random_ids(0, 150)
CUTS = [0, 1, 61, 149, 150, 118]
CLOSINGS = [random_ids(i, n) for i, n in enumerate([5, 0, 7, 4, 30, 12])]
NEW = 4


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_one_reading_gives_the_answers_and_log_probs_of_the_plain_path(name: str) -> None:
    model = architecture(name)
    engine = Engine(model, [STOP], chunk=64)
    assert not engine.support.refusal(512)
    requests = [EngineRequest(cut, closing, NEW) for cut, closing in zip(CUTS, CLOSINGS, strict=True)]
    together = engine.answer(DOCUMENT, requests)
    alone = engine.answer(DOCUMENT, requests[-1:])
    rows = [Continuation(cut, random_ids(40 + cut, 30), 3) for cut in (0, 47, 150)]
    found = engine.nll(DOCUMENT, rows, [(1, 150)])
    engine.close()
    prompts = [np.concatenate([DOCUMENT[: request.cut], request.closing]) for request in requests]
    plain = [generate_plain(model, prompt, NEW, [STOP]) for prompt in prompts]
    assert [one.answer for one in [*together, *alone]] == [*plain, plain[-1]]
    want = plain_nll(engine.reader, DOCUMENT, rows, [(1, 150)])
    assert found is not None
    pairs = zip([*found.continuations, *found.spans], [*want.continuations, *want.spans], strict=True)
    assert max(float(np.abs(got - expected).max()) for got, expected in pairs) < 1e-3
