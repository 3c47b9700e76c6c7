"""What recurrent layers hold during a pass stays within a limit, and answers stay those of the plain path."""

from __future__ import annotations

import functools
import inspect
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers.models.granitemoehybrid import modeling_granitemoehybrid as granite  # noqa: E402

from leadline.models.hf import engine as hf_engine  # noqa: E402
from leadline.models.hf import replacements, scans, steps  # noqa: E402
from leadline.models.hf import trial as hf_trial  # noqa: E402
from leadline.models.hf.decode import generate_plain  # noqa: E402
from leadline.models.hf.engine import Engine, EngineRequest  # noqa: E402
from leadline.models.hf.reader import Reader, rows_of  # noqa: E402
from leadline.models.hf.scan_size import LiveBytes, scan_bytes  # noqa: E402
from leadline.models.hf.states import scan_chunks, scan_modules  # noqa: E402
from leadline.models.hf.trial import choose_reader  # noqa: E402
from support.tiny_models import STOP, random_ids, tiny  # noqa: E402

KIB = 1 << 10
DOCUMENT = random_ids(0, 300)
REQUESTS = [EngineRequest(cut, random_ids(cut, n), 4) for cut, n in ((0, 9), (70, 5), (71, 30), (300, 12))]


def test_memory_is_that_of_tensors_which_are_alive() -> None:
    given = torch.ones(1000)
    with LiveBytes() as live:
        first = given + 1
        view = first[:10]
        assert (live.now, live.most) == (4000, 4000)
        (first * 2).sum()
        assert (live.now, live.most) == (4000, 8004)
        del first
        assert live.now == 4000  # the view keeps it
        given.add_(1)
        del view
        assert (live.now, live.most) == (0, 8004)


def answers(engine: Engine) -> list[Any]:
    return [one.answer for one in engine.answer(DOCUMENT, REQUESTS)]


def plain(model: Any) -> list[Any]:
    prompts = [np.concatenate([DOCUMENT[: request.cut], request.closing]) for request in REQUESTS]
    return [generate_plain(model, prompt, 4, [STOP]) for prompt in prompts]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("limit", [1 << 30, 2000 * KIB, 600 * KIB])
@pytest.mark.parametrize("family", ["mamba2", "granite_hybrid", "falcon_h1", "qwen3_next"])
def test_a_pass_holds_no_more_than_the_limit(family: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf_engine, "SCAN_BYTES", limit)
    model = tiny(family)
    engine = Engine(model, [STOP])
    reader = engine.reader
    assert engine.chunk == reader.chunk
    assert scan_bytes(reader, reader.chunk, reader.scan_chunk) <= limit
    whole = scan_bytes(reader, 1024, None)
    assert (reader.chunk < 1024) == (whole > limit)
    if reader.chunk < 1024:  # and not needlessly small
        assert scan_bytes(reader, 4 * reader.chunk, reader.scan_chunk) > limit
    found = answers(engine)
    engine.close()
    assert found == plain(model)


@pytest.mark.slow
def test_where_a_scan_holds_a_state_for_every_pair_of_tokens_its_chunks_get_smaller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in versions of transformers that multiply before they sum."""
    own = granite.mamba2_chunk_scan
    chunks: set[int] = set()

    def heavy(states: Any, dt: Any, A: Any, B: Any, C: Any, chunk_size: int, **more: Any) -> Any:
        rows, tokens, heads, _ = states.shape
        chunks.add(chunk_size)
        held = torch.empty(rows, -(-tokens // chunk_size) * chunk_size, chunk_size, heads, B.shape[-1])
        found = own(states, dt, A, B, C, chunk_size, **more)
        assert held.numel()
        return found

    monkeypatch.setattr(granite, "mamba2_chunk_scan", heavy)
    model = tiny("granite_hybrid", mamba_chunk_size=256)
    limit = 16 << 20  # 1,024 tokens in chunks of 256 hold more than 64 MiB
    reader, support = choose_reader(model, Reader(model, chunk=1024), scan_bytes=limit)
    assert not support.reason
    assert (reader.scan_chunk, reader.chunk) == (32, 1024)
    assert scan_bytes(reader, reader.chunk, reader.scan_chunk) <= limit
    assert all(module.chunk_size == 256 for module in scan_modules(model))  # the model's own passes keep theirs
    engine = Engine(model, [STOP])
    engine.reader, engine.chunk = reader, reader.chunk
    chunks.clear()
    with LiveBytes() as live:
        found = answers(engine)
    assert chunks == {32}
    assert reader.kv_cache is not None
    assert reader.keeper is not None
    assert live.most <= 2 * limit + reader.kv_cache.bytes + reader.keeper.bytes
    engine.close()
    assert found == plain(model)


def test_rows_are_scanned_together_only_as_far_as_a_pass_goes() -> None:
    engine = Engine(tiny("granite_hybrid", mamba_chunk_size=64), [STOP])
    rows = rows_of(DOCUMENT, [200] * 40, [random_ids(i, 20) for i in range(40)])
    engine.reader.read(DOCUMENT[:200], cuts=[200])
    assert engine.batch_size(rows, 4) == 1024 // 16  # scans of ours compute for 16 tokens of a row at least
    engine.reader.replacements = []
    assert engine.batch_size(rows, 4) == 1024 // 64


def test_a_scan_has_its_own_chunks_again_after_a_pass() -> None:
    modules = scan_modules(tiny("mamba2"))
    assert len(modules) == 3
    with suppress(KeyError), scan_chunks(modules, 4):
        assert {module.chunk_size for module in modules} == {4}
        raise KeyError
    assert {module.chunk_size for module in modules} == {16}


def test_chunks_stay_those_of_a_kernel_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf_trial, "find_scans", lambda model, installed: [])
    model = tiny("granite_hybrid", mamba_chunk_size=128)
    for installed, chosen in ((None, 64), (object(), None)):
        monkeypatch.setattr("leadline.models.hf.scan_size.find_spec", lambda name, found=installed: found)
        reader, _ = choose_reader(model, Reader(model, chunk=256), scan_bytes=1 << 30)
        assert reader.scan_chunk == chosen


# --- scans of our own -----------------------------------------------------------------------------


def recurrent_mamba2(given: dict[str, Any]) -> tuple[Any, Any]:
    """The definition of Mamba 2, a token at a time in float64."""
    x, dt, a, b, c = (given[name].double() for name in ("hidden_states", "dt", "A", "B", "C"))
    dt = torch.nn.functional.softplus(dt + given["dt_bias"].double())
    b, c = (t.repeat_interleave(x.shape[2] // t.shape[2], 2) for t in (b, c))
    state, answers = given["initial_states"].double(), []
    for token in range(x.shape[1]):
        step = dt[:, token, :, None, None]
        state = state * (step * a[:, None, None]).exp() + step * x[:, token, ..., None] * b[:, token, :, None]
        answers.append((state * c[:, token, :, None]).sum(-1) + given["D"].double()[:, None] * x[:, token])
    return torch.stack(answers, 1), state


def recurrent_delta(given: dict[str, Any]) -> tuple[Any, Any]:
    """The definition of the gated delta rule, a token at a time in float64."""
    query, key, value, g, beta = (given[name].double() for name in ("query", "key", "value", "g", "beta"))
    query, key = (t / (t.square().sum(-1, keepdim=True) + 1e-6).sqrt() for t in (query, key))
    state, answers = given["initial_state"].double(), []
    for token in range(key.shape[1]):
        state = state * g[:, token, :, None, None].exp()
        held = (state * key[:, token, ..., None]).sum(-2)
        correction = (value[:, token] - held) * beta[:, token, :, None]
        state = state + key[:, token, ..., None] * correction[..., None, :]
        answers.append((state * query[:, token, ..., None]).sum(-2) * query.shape[-1] ** -0.5)
    return torch.stack(answers, 1), state


@pytest.mark.parametrize("held", [scans.HELD_BYTES, 1 << 16])
@pytest.mark.parametrize("tokens", [1, 5, 64, 129, 300])
def test_scans_are_the_recurrence(tokens: int, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "HELD_BYTES", held)
    device = torch.device("cpu")
    for function, definition, example in (
        (scans.mamba2_scan, recurrent_mamba2, replacements._mamba2_example),
        (scans.gated_delta_rule, recurrent_delta, replacements._delta_example),
    ):
        given = example(device, tokens)
        for got, want in zip(function(**given), definition(given), strict=True):
            assert (got - want).norm() <= 3e-6 * want.norm()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("repeated", [True, False])
def test_a_step_of_mamba_2_is_the_recurrence_and_changes_the_state_in_place(repeated: bool, kind: Any) -> None:
    given = replacements._mamba2_step_example(torch.device("cpu"))
    given["state"] = given["state"].to(kind)
    if not repeated:  # numbers of their own for every row of a state, without a stride of zero
        given |= {name: given[name] * torch.linspace(0.5, 1.5, 8) for name in ("dt", "dt_bias")}
        given["A"] = given["A"] * torch.linspace(0.5, 1.5, 16)
    numbers = {name: value.double() for name, value in given.items() if name != "dt_softplus"}
    step = torch.nn.functional.softplus(numbers["dt"] + numbers["dt_bias"])
    keys, queries = (numbers[name].repeat_interleave(2, 1)[:, :, None] for name in "BC")
    state = numbers["state"] * (step[..., None] * numbers["A"]).exp()
    state = state + (step * numbers["hidden_states"])[..., None] * keys
    want = (state * queries).sum(-1) + numbers["D"] * numbers["hidden_states"]
    got = steps.mamba2_step(**given, z=torch.full((2, 4, 8), 2.0))
    near = 3e-6 if kind is torch.float32 else 1e-2
    assert (got - want * torch.nn.functional.silu(torch.tensor(2.0))).norm() <= 3e-6 * want.norm()
    assert given["state"].dtype is kind
    assert (given["state"] - state).norm() <= near * state.norm()


@pytest.mark.parametrize("tokens", [1, 3])
def test_steps_of_the_gated_delta_rule_are_the_recurrence_and_change_the_state_in_place(tokens: int) -> None:
    given = replacements._delta_example(torch.device("cpu"), tokens)
    wanted = recurrent_delta(given)
    found = steps.delta_step(**given)
    for got, want in zip(found, wanted, strict=True):
        assert got is not None
        assert (got - want).norm() <= 3e-6 * want.norm()
    assert found[1] is given["initial_state"]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("family", ["mamba2", "granite_hybrid", "falcon_h1", "qwen3_next"])
def test_the_model_has_its_own_scan_again_after_a_pass(family: str) -> None:
    model = tiny(family)
    engine = Engine(model, [STOP])
    assert len(engine.reader.replacements) == 2, "the scan and the step of this family are replaced"
    before = [getattr(each.file, each.name) for each in engine.reader.replacements]
    found = answers(engine)
    assert [getattr(each.file, each.name) for each in engine.reader.replacements] == before
    engine.close()
    assert found == plain(model)


def test_a_scan_that_gives_other_numbers_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {name: (lambda **given: (given["hidden_states"], 0), package, example)
             for name, (_, package, example) in replacements._KNOWN.items()}  # fmt: skip
    monkeypatch.setattr(replacements, "_KNOWN", wrong)
    assert replacements.find_scans(tiny("granite_hybrid")) == []


@pytest.mark.parametrize("installed", [False, True])
def test_an_installed_package_is_called_only_when_it_is_asked_for(
    installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("qwen3_next")
    own = replacements.find_scans(model)
    file, name = own[0].file, "torch_chunk_gated_delta_rule"
    reference, calls = inspect.unwrap(getattr(file, name)), []

    @functools.wraps(reference)
    def package(*args: Any, **options: Any) -> Any:
        calls.append(name)
        return reference(*args, **options)

    monkeypatch.setattr(file, name, package)
    monkeypatch.setattr(replacements, "find_spec", lambda searched: object() if searched == "fla" else None)
    engine = Engine(model, [STOP], installed=installed)
    assert [each.name for each in engine.reader.replacements] == ([] if installed else [each.name for each in own])
    shared = answers(engine)
    assert bool(calls) == installed
    engine.close()
    assert shared == plain(model)
