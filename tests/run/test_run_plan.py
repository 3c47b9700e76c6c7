"""Before the run: what cannot be done is refused, costs are known, and a folder has a name and belongs to one run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from leadline.core.answers import Completion, Failure
from leadline.core.errors import LengthError, OtherRunError, UsageError
from leadline.core.spec import Spec, make_spec
from leadline.results.run import load_run
from leadline.results.verdict import failures_fix
from leadline.run import documents
from leadline.run import plan as planning
from leadline.run.export_prompts import JSONL, write_prompts
from leadline.run.identity import folder_name
from leadline.run.measure import measure, plan
from leadline.store.runs import RECORDS
from leadline.text.chat import completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import open_tokenizer
from support.scripted_model import ScriptedModel


def spec(**values: Any) -> Spec:
    base = {"model": "sim:perfect?tokenizer=bytes", "tasks": "niah", "lengths": "1k,2k", "depths": 3, "samples": 2}
    return make_spec({**base, **values})


def test_a_length_above_a_hard_window_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(LengthError, match="at most 4,096 tokens; asked for: 8,192"):
        plan(spec(model="sim:perfect?tokenizer=bytes&limit=4k", lengths="2k,8k"))


def test_a_length_beyond_a_soft_window_is_a_note() -> None:
    made = plan(spec(model="sim:cliff?tokenizer=bytes&window=2k", lengths="1k,4k"))
    assert "beyond the window of 2,048: 4,096" in made.notes


def test_a_length_below_the_floor_is_refused_with_the_floor() -> None:
    with pytest.raises(LengthError) as refused:
        plan(spec(lengths="100"))
    assert refused.value.shortest is not None
    assert refused.value.shortest > 100
    assert f"about {refused.value.shortest:,}" in refused.value.fix
    assert re.findall("[0-9]+", refused.value.what) == ["100", "4", "64"]  # the length, facts and allowance: no other


def test_a_length_that_cannot_be_built_fails_its_own_samples_and_the_run_goes_on(tmp_path: Path) -> None:
    run = spec(lengths="256,2k", depths=2, samples=1)
    [note] = [note for note in plan(run).notes if "will fail" in note]
    assert note.startswith("niah at 256 tokens will fail: 256 tokens cannot hold this")
    measured = measure(run, out=tmp_path / "run")
    assert failures_fix(load_run(measured.folder)) == "ask --lengths 2k"  # no server and no second try helps
    outcomes = [(record.cell.length, record.outcome) for record in measured.records]
    assert sorted(length for length, _ in outcomes) == [256, 256, 2048, 2048]
    for length, outcome in outcomes:
        assert isinstance(outcome, Failure) == (length == 256)
        assert not isinstance(outcome, Failure) or "cannot be built" in outcome.message


@pytest.mark.parametrize(("tokenizer", "fits"), [("bytes", "9m"), ("tests/golden/tokenizers/across-words.json", "4m")])
def test_a_length_whose_document_cannot_fit_into_memory_is_refused_before_it_is_built(
    tokenizer: str, fits: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(documents, "free_host_memory", lambda: 1 << 30)
    monkeypatch.setattr(Fitter, "fit", lambda *_: pytest.fail("a document was built"))
    absurd = spec(model=f"sim:perfect?tokenizer={tokenizer}", lengths="1k,2000m")
    fitter = Fitter(open_tokenizer(tokenizer), completion_frame())
    for refused in (lambda: plan(absurd), lambda: write_prompts(absurd, fitter, tmp_path / "prompts.jsonl", JSONL)):
        with pytest.raises(LengthError, match=r"2,097,152,000 tokens needs at least .* and 1\.0 GiB are free") as error:
            refused()
        assert error.value.fix == f"leave out lengths above {fits}"


def test_lengths_that_fit_into_memory_or_do_not_set_the_size_of_a_text_are_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(documents, "free_host_memory", lambda: 1 << 20)
    plan(spec(lengths="4k"))
    plan(spec(lengths="1k,2000m", tasks=[{"name": "niah", "options": {"no_context": True}}]))


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("tokenizer", ["bytes", "tests/golden/tokenizers/across-words.json"])
@pytest.mark.parametrize(
    ("task", "options", "reading"),
    [
        ("vt", {"chains": 16}, "fresh"),  # its example is longer from 2k on
        ("vt", {}, "shared"),
        ("agent_log", {"jobs": 16}, "fresh"),
        ("copy_words", {}, "fresh"),  # as many words as fit
        ("aggregate", {}, "fresh"),
    ],
)
def test_the_shortest_length_that_an_error_names_can_be_asked(
    tokenizer: str, task: str, options: dict[str, Any], reading: str
) -> None:
    asked = {
        "model": f"sim:perfect?tokenizer={tokenizer}",
        "tasks": [{"name": task, "options": options}],
        "depths": [0, 0.5, 1],
        "reading": reading,
    }
    with pytest.raises(LengthError) as refused:
        plan(spec(**asked, lengths="100"))
    shortest = refused.value.shortest
    assert shortest is not None
    assert f"{shortest:,}" in refused.value.fix
    plan(spec(**asked, lengths=str(shortest)))


def test_a_reading_that_the_task_or_the_model_cannot_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedModel(lambda probe, attempt: Completion(probe.question.targets[0]))
    model.card = model.card.model_copy(update={"nested_problem": "its positions depend on the total length"})
    monkeypatch.setattr(planning, "open_model", lambda spec, **_: model)
    with pytest.raises(UsageError, match="cannot be read nested: its positions"):
        plan(spec(reading="nested"))
    from leadline.tasks.niah import Needle

    monkeypatch.setattr(Needle, "readings", ("fresh",))
    with pytest.raises(UsageError, match="task niah does not support --reading shared") as refused:
        plan(spec(reading="shared"))
    assert refused.value.fix == "it supports: fresh"


def test_costs_are_counted_before_the_run_and_are_what_is_then_sent(tmp_path: Path) -> None:
    made = plan(spec())
    summary = measure(spec(), tmp_path / "run")
    assert made.cost.requests == summary.totals.done == made.planned
    assert made.cost.prompt_tokens == summary.totals.prompt_tokens
    assert made.cost.tokens_read == made.cost.prompt_tokens


def test_shared_and_nested_reading_read_less(tmp_path: Path) -> None:
    fresh, shared, nested = (
        plan(spec(reading=r, lengths="2k,4k", depths=3)).cost for r in ("fresh", "shared", "nested")
    )
    assert fresh.prompt_tokens == shared.prompt_tokens == nested.prompt_tokens
    assert nested.tokens_read < shared.tokens_read < fresh.tokens_read
    document = 4096 - 64
    assert 2 * document < nested.tokens_read < 2 * (document + 12 * 200)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, "niah-sim-perfect"),
        ({"model": "hf:/data/checkpoints/step-4000/"}, "niah-hf-step-4000"),
        ({"model": "openai:org/Some-7B?base_url=http://127.0.0.1:8000/v1"}, "niah-openai-Some-7B"),
        ({"tasks": [{"name": "niah", "label": "a / b"}, "niah"]}, "a-b+1-sim-perfect"),
    ],
)
def test_a_folder_is_named_by_task_model_and_digest(values: dict[str, Any], name: str) -> None:
    made = spec(**values)
    assert folder_name(made) == f"{name}-{made.digest[:8]}"


def test_a_sweep_has_a_folder_without_brackets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    swept = spec(tasks=[{"name": "niah", "label": f"niah[keys={n}]", "keys": n} for n in (1, 2)])
    folder = measure(swept).folder
    assert folder.name == f"niah-keys=1+1-sim-perfect-{swept.digest[:8]}"
    before = (folder / RECORDS).read_bytes()
    assert measure(swept).folder == folder
    assert (folder / RECORDS).read_bytes() == before
    assert [p.name for p in Path("runs").iterdir()] == [folder.name]


def test_another_run_in_the_folder_is_refused_by_name(tmp_path: Path) -> None:
    measure(spec(), tmp_path / "run")
    with pytest.raises(OtherRunError, match=r"spec\.seed is 0 there and 1 here"):
        measure(spec(seed=1), tmp_path / "run")


def test_a_secret_in_the_models_name_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="contains a secret") as refused:
        plan(spec(model="openai:m?base_url=http://me:hush@127.0.0.1:9/v1"))
    assert "hush" not in str(refused.value)
