"""`hf:` as a model: opening, what it says of itself, what it sends, what it refuses."""

from __future__ import annotations

import builtins
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from leadline.core.types import Question

pytest.importorskip("torch")
pytest.importorskip("transformers")

import transformers

from leadline.core.answers import Completion, Failure
from leadline.core.contracts import LogprobModel
from leadline.core.errors import (
    LeadlineError,
    MissingExtra,
    RunStopped,
    SourceError,
    TokenizerError,
    UnknownName,
    UsageError,
)
from leadline.core.registry import ModelName, provider
from leadline.core.types import Cell, Continuation, Document, Probe, TokenNLL
from leadline.models.hf import forecast
from leadline.models.hf.decode import Generated, generate_plain
from leadline.models.hf.engine import Engine, EngineAnswer, EngineRequest
from leadline.models.hf.forecast import DocumentReading, Speed
from leadline.models.hf.load import window_of
from leadline.models.hf.memory import DecoderShape
from leadline.models.hf.model import HFModel
from support.commands import Say
from support.tiny_models import CHAT, STOP, model_folder, random_ids, tiny


def opened(name: str) -> HFModel:
    model = provider(ModelName.parse(name)).open(ModelName.parse(name).name)
    assert isinstance(model, HFModel)
    return model


def document(model: HFModel, cuts: list[int], allowance: int = 4) -> Document:
    ids = random_ids(3, 120)
    probes = []
    for i, cut in enumerate(cuts):
        closing = random_ids(10 + i, 4)
        tokens = cut + len(closing)
        cell = Cell("niah", tokens + allowance, 0.5, i)
        probes.append(Probe(cell, Question("", "", ("x",), allowance, ("match.all",)), cut, 0, "", closing, tokens))
    return Document("d", "c", model.frame, "", ids, 0, 0, (), tuple(probes))


def test_a_folder_opens_with_its_window_template_and_stop_tokens(tmp_path: Path) -> None:
    model = opened(f"hf:{model_folder(tmp_path)}")
    assert model.card.window == 512
    assert model.card.window_is_hard is False
    assert model.frame.form == "chat"
    assert model.frame.before == "<|start|>user\n"
    assert model.engine.stops == (STOP, 4)  # end of text, and the template's end of turn
    assert model.asked_per == "document"
    assert model.tokenizer.encode("w8 w9").tolist() == [8, 9]
    assert isinstance(model, LogprobModel)


def test_an_answer_says_what_was_read_and_how(tmp_path: Path) -> None:
    model = opened(f"hf:{model_folder(tmp_path)}")
    doc = document(model, [10, 50, 120])
    answers = model.answer(doc, doc.probes)
    for probe, answer in zip(doc.probes, answers, strict=True):
        assert isinstance(answer.outcome, Completion)
        assert answer.outcome.prompt_tokens == probe.prompt_tokens
        assert answer.sent.form == "ids"
        assert answer.sent.notes == ()
    assert len({a.sent.digest for a in answers}) == 3


def test_switching_shared_reading_off_changes_no_answer_but_is_said(tmp_path: Path) -> None:
    folder = model_folder(tmp_path)
    quick, slow = opened(f"hf:{folder}"), opened(f"hf:{folder}?shared=false")
    doc = document(quick, [10, 50, 120])
    one, other = quick.answer(doc, doc.probes), slow.answer(doc, doc.probes)
    assert [a.outcome for a in one] == [a.outcome for a in other]
    assert other[0].sent.notes == ("plain path: shared reading is switched off",)


def test_a_question_past_the_window_is_asked_and_marked(tmp_path: Path) -> None:
    model = opened(f"hf:{model_folder(tmp_path, max_position_embeddings=64)}")
    doc = document(model, [20, 100])
    notes = [a.sent.notes for a in model.answer(doc, doc.probes)]
    assert notes == [(), ("beyond the window of 64 tokens",)]


def test_a_model_without_a_template_is_asked_in_completion_form(tmp_path: Path) -> None:
    model = opened(f"hf:{model_folder(tmp_path, chat=False)}")
    assert model.frame.form == "completion"
    assert "completion form: no chat template" in model.card.notes
    with pytest.raises(UsageError, match="no chat template"):
        opened(f"hf:{tmp_path}?form=chat")


def test_a_template_that_is_not_there_is_an_error_and_not_completion_form(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model", chat=False)
    for named in (tmp_path / "none.jinja", folder / "none.jinja", folder):
        with pytest.raises(TokenizerError, match="no chat template"):
            opened(f"hf:{folder}?template={named}")


def test_an_answer_is_not_begun_for_a_model_that_thinks_first(tmp_path: Path) -> None:
    folder = model_folder(tmp_path)
    assert opened(f"hf:{folder}").frame.prefill
    assert not opened(f"hf:{folder}?thinking=on").frame.prefill
    (folder / "chat_template.jinja").write_text(CHAT.replace("assistant\n", "assistant\n<think>\n"))
    model = opened(f"hf:{folder}")
    assert not model.frame.prefill
    assert any("not prefilled" in note for note in model.card.notes)


def test_a_template_in_a_file_of_its_own_knows_the_special_tokens_of_the_model(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"bos_token": "<s>"}))
    (tmp_path / "mine.jinja").write_text("{{ bos_token }}" + CHAT)
    assert opened(f"hf:{folder}?template={tmp_path / 'mine.jinja'}").frame.before.startswith("<s>")


def test_a_text_without_template_has_an_answer_although_the_template_begins_with_thinking(tmp_path: Path) -> None:
    folder = model_folder(tmp_path)
    (folder / "chat_template.jinja").write_text(CHAT.replace("assistant\n", "assistant\n<think>\n"))
    model = opened(f"hf:{folder}")
    doc = document(model, [50])
    [thought] = model.answer(doc, doc.probes)
    [said] = model.answer(replace(doc, frame=model.plain), doc.probes)
    assert isinstance(thought.outcome, Completion)
    assert isinstance(said.outcome, Completion)
    assert (thought.outcome.text, said.outcome.thinking) == ("", "")
    assert said.outcome.text.strip() == thought.outcome.thinking != ""


def test_a_record_says_where_the_answer_prefix_was_and_nothing_where_there_is_none(tmp_path: Path) -> None:
    folder = model_folder(tmp_path)
    for options, place in (("", "prefill"), ("?thinking=on", "appended")):
        model = opened(f"hf:{folder}{options}")
        doc = document(model, [50, 60])
        probes = (
            doc.probes[0],
            replace(doc.probes[1], question=msgspec.structs.replace(doc.probes[1].question, answer_prefix="w8")),
        )
        assert [answer.sent.prefix for answer in model.answer(doc, probes)] == ["none", place]


@pytest.mark.parametrize(
    ("ids", "said", "thought"),
    [([20, 8, 9, 21, 10, 11], "w10w11", 4), ([20, 8, 9, 12], "", 4), ([10, 11], "w10w11", None)],
)
def test_the_tokens_of_thinking_are_counted_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: list[int], said: str, thought: int | None
) -> None:
    folder = model_folder(tmp_path)
    words = (folder / "tokenizer.json").read_text().replace('"w20"', '"<think>"').replace('"w21"', '"</think>"')
    (folder / "tokenizer.json").write_text(words)
    model = opened(f"hf:{folder}")
    monkeypatch.setattr(model.engine, "answer", lambda *_: [EngineAnswer(Generated(ids, stopped=True))])
    doc = document(model, [50])
    [answer] = model.answer(doc, doc.probes)
    assert isinstance(answer.outcome, Completion)
    assert answer.outcome.text == said
    assert answer.outcome.completion_tokens == len(ids) + 1
    assert answer.outcome.thinking_tokens == thought


def test_a_converted_tokenizer_comes_into_the_cache_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = model_folder(tmp_path / "model")
    files = {name: (folder / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json")}
    (folder / "tokenizer.json").unlink()

    class Converted:
        def save_pretrained(self, place: Path) -> None:
            for name, data in files.items():
                (Path(place) / name).write_bytes(data)

    def stopped(*_: Any, **__: Any) -> None:
        raise OSError("stopped while files are copied into the cache")

    monkeypatch.setenv("LEADLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("leadline.models.hf.load.AutoTokenizer.from_pretrained", lambda *_, **__: Converted())
    monkeypatch.setattr(shutil, "copyfile", stopped)
    assert opened(f"hf:{folder}").frame.form == "chat"


@pytest.mark.parametrize(
    ("rope", "window", "nested"), [("linear:2", 1024, False), ("yarn:4", 2048, False), ("dynamic:2", 1024, True)]
)
def test_stretching_positions_goes_through_transformers_own_configuration(
    tmp_path: Path, rope: str, window: int, nested: bool
) -> None:
    model = opened(f"hf:{model_folder(tmp_path)}?rope={rope}")
    assert model.card.window == window
    assert bool(model.card.nested_problem) is nested
    parameters = model.engine.model.config.rope_parameters
    assert (parameters["rope_type"], parameters["factor"]) == (rope.split(":")[0], float(rope.split(":")[1]))
    plain = opened(f"hf:{tmp_path}")
    assert plain.card.fingerprints["rope"] != model.card.fingerprints["rope"]
    doc = document(plain, [100])
    assert isinstance(model.answer(doc, doc.probes)[0].outcome, Completion)


@pytest.mark.parametrize(
    ("rope", "theta", "window"),
    [("ntk:2", 10000 * 2 ** (8 / 6), 1024), ("theta:1e6", 1e6, 512), ("theta:5e5", 5e5, 512)],
)
def test_another_base_of_the_rotary_embedding_gives_its_frequencies(
    tmp_path: Path, rope: str, theta: float, window: int
) -> None:
    model = opened(f"hf:{model_folder(tmp_path)}?rope={rope}")  # heads of 8: four frequencies
    assert model.card.window == window
    assert not model.engine.support.reason
    found = model.engine.model.base_model.rotary_emb.inv_freq.tolist()
    assert found == pytest.approx([theta ** (-i / 8) for i in (0, 2, 4, 6)])
    if rope == "ntk:2":  # the highest frequency is kept, the lowest is interpolated by the factor
        plain = opened(f"hf:{tmp_path}").engine.model.base_model.rotary_emb.inv_freq.tolist()
        assert (found[0], found[-1]) == pytest.approx((plain[0], plain[-1] / 2))


@pytest.mark.parametrize("family", ["dynamic"])
def test_architectures_that_cannot_share_a_reading_take_the_plain_path_and_say_so(family: str) -> None:
    model = tiny(family)
    engine = Engine(model, [STOP], chunk=64)
    text = random_ids(0, 100)
    requests = [EngineRequest(100, random_ids(1, 5), 5), EngineRequest(70, random_ids(2, 5), 5)]
    answers = engine.answer(text, requests)
    assert all(one.plain_reason for one in answers)
    engine.reader.use_own_attention()
    for request, one in zip(requests, answers, strict=True):
        prompt = np.concatenate([text[: request.cut], request.closing])
        assert one.answer == generate_plain(model, prompt, 5, [STOP])


def test_what_lies_inside_the_original_length_is_shared() -> None:
    model = tiny("dynamic")
    engine = Engine(model, [STOP], chunk=64)
    text = random_ids(0, 14)
    answers = engine.answer(text, [EngineRequest(14, random_ids(1, 5), 5), EngineRequest(9, random_ids(2, 5), 5)])
    assert not any(one.plain_reason for one in answers)
    engine.reader.use_own_attention()
    assert answers[0].answer == generate_plain(model, np.concatenate([text, random_ids(1, 5)]), 5, [STOP])


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mamba", "mamba2", "rwkv"])
@pytest.mark.parametrize("option", ["", "?shared=false"])
def test_models_without_attention_heads_open_answer_score_and_are_forecast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, option: str
) -> None:
    model = opened(f"hf:{model_folder(tmp_path, family)}{option}")
    assert any(("plain path" in note) == bool(option) for note in model.card.notes)
    doc = document(model, [10, 60])
    outcomes = [answer.outcome for answer in model.answer(doc, doc.probes)]
    for probe, outcome in zip(doc.probes, outcomes, strict=True):
        prompt = np.concatenate([doc.ids[: probe.cut], probe.suffix_ids])
        want = generate_plain(model.engine.model, prompt, probe.question.allowance, model.engine.stops)
        assert isinstance(outcome, Completion)
        assert outcome.text == model.tokenizer.decode(want.ids)
    assert isinstance(model.nll(doc.ids, [Continuation(50, random_ids(1, 4))], [(1, 50)]), TokenNLL)
    assert isinstance(model.nll(doc.ids, [Continuation(0, random_ids(1, 4), 1)]), TokenNLL)  # nothing before it
    assert model.forecast([[(500, 10, 4)]])[0].startswith("memory")
    monkeypatch.setattr(model.engine, "answer", lambda ids, requests: [EngineAnswer(None)] * len(requests))
    assert isinstance(model.answer(doc, doc.probes)[0].outcome, Failure)  # out of memory, without a KV cache to blame


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("GPTNeo", {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]}),
        ("Mpt", {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 512}),
        ("XGLM", {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 64}),
    ],
)
def test_models_with_names_of_their_own_for_layers_and_heads_answer(name: str, sizes: dict[str, Any]) -> None:
    config = getattr(transformers, f"{name}Config")(vocab_size=160, **sizes)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    engine, text, closing = Engine(model, [STOP]), random_ids(1, 100), random_ids(2, 4)
    first, _ = engine.answer(text, [EngineRequest(100, closing, 3), EngineRequest(60, closing, 3)])
    assert first.answer == generate_plain(model, np.concatenate([text, closing]), 3, [STOP])
    assert engine.kv_bytes == 2 * 2 * 32 * 4  # keys and values of two layers
    assert window_of(config) == (2048 if name != "Mpt" else 512)


def test_dynamic_positions_forget_longer_texts_met_before() -> None:
    model = tiny("dynamic")
    first = generate_plain(model, random_ids(1, 80), 6, [])
    generate_plain(model, random_ids(2, 400), 2, [])
    assert generate_plain(model, random_ids(1, 80), 6, []) == first


def test_two_checkpoints_of_one_shape_have_different_fingerprints(tmp_path: Path) -> None:
    one = opened(f"hf:{model_folder(tmp_path / 'a')}")
    other = tiny("llama")
    other.lm_head.weight.data[0, 0] += 1
    model_folder(tmp_path / "b")
    other.save_pretrained(tmp_path / "b")
    assert one.card.fingerprints["revision"] != opened(f"hf:{tmp_path / 'b'}").card.fingerprints["revision"]


def test_bad_names_options_and_folders_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no model folder"):
        opened("hf:./nowhere")
    with pytest.raises(SourceError, match=r"no config\.json"):
        opened(f"hf:{tmp_path}")
    with pytest.raises(UsageError, match="rope"):
        opened("hf:x?rope=stretchy:2")
    with pytest.raises(UnknownName):
        opened("hf:x?dtypo=bf16")
    with pytest.raises(UsageError, match="dtype"):
        opened("hf:x?dtype=int3")
    with pytest.raises(SourceError, match="no file"):
        opened(f"hf:{tmp_path}/none.gguf")
    folder = model_folder(tmp_path)
    with pytest.raises(UsageError, match="device"):
        opened(f"hf:{folder}?device=warp")
    (folder / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(SourceError, match=r"weights could not be read|cannot be opened"):
        opened(f"hf:{folder}")


def test_unknown_architectures_code_without_permission_and_a_missing_window_are_named(tmp_path: Path) -> None:
    folder = model_folder(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "from_the_future"}))
    with pytest.raises(SourceError, match="from_the_future") as caught:
        opened(f"hf:{folder}")
    assert "upgrade transformers" in caught.value.fix
    own_code = {"auto_map": {"AutoConfig": "configuration_x.C", "AutoModelForCausalLM": "modeling_x.M"}}
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "from_the_future", **own_code}))
    with pytest.raises(SourceError) as caught:
        opened(f"hf:{folder}")
    assert caught.value.fix == "add trust_remote_code=true if you trust its code"
    del config["max_position_embeddings"]
    (folder / "config.json").write_text(json.dumps(config))
    model = opened(f"hf:{folder}")
    note = "config.json names no window: transformers' default of 2048 tokens"
    assert note in model.card.notes
    doc = document(model, [20])
    assert model.answer(doc, doc.probes)[0].sent.notes == (note,)


def test_without_torch_the_pip_line_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    own = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "torch":
            raise ImportError(name)
        return own(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra) as caught:
        opened("hf:anything/else")
    assert 'pip install -e ".[hf]"' in caught.value.fix


def test_a_lost_gpu_stops_the_run_so_that_it_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = opened(f"hf:{model_folder(tmp_path)}")

    def lost(*_: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(model.engine, "answer", lost)
    doc = document(model, [10])
    with pytest.raises(RunStopped, match="GPU stopped working"):
        model.answer(doc, doc.probes)


def test_running_out_of_memory_is_a_failure_of_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    model = opened(f"hf:{model_folder(tmp_path)}")

    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(model.engine.reader, "run", full)
    doc = document(model, [10, 100])
    outcomes = [a.outcome for a in model.answer(doc, doc.probes)]
    assert all(isinstance(o, Failure) and o.why == "out_of_memory" for o in outcomes)
    assert isinstance(model.nll(doc.ids, spans=[(1, 50)]), Failure)


def test_nll_refuses_what_cannot_be_scored(tmp_path: Path) -> None:
    model = opened(f"hf:{model_folder(tmp_path)}")
    ids = random_ids(0, 50)
    found = model.nll(ids, [Continuation(50, random_ids(1, 4))], [(1, 50)])
    assert isinstance(found, TokenNLL)
    assert (len(found.continuations[0]), len(found.spans[0])) == (4, 49)
    with pytest.raises(ValueError, match="first token"):
        model.nll(ids, [Continuation(0, random_ids(1, 4))])
    with pytest.raises(ValueError, match="span"):
        model.nll(ids, spans=[(0, 4)])
    with pytest.raises(ValueError, match="is not within"):
        model.nll(ids, [Continuation(51, random_ids(1, 4))])


def test_layers_on_several_devices_have_the_memory_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(forecast, "device_memory", lambda device: 80 << 30)
    shape = DecoderShape(
        layers=80, hidden=8192, intermediate=28672, heads=64, key_heads=8, width=128, vocabulary=128256
    )
    cards = [torch.device("cpu"), torch.device("cuda:1"), torch.device("cuda:2")]

    def words(devices: list[torch.device]) -> tuple[str, ...]:
        weights, readings = shape.parameters * 2, [DocumentReading(((131_000, 64, 16),))]
        return forecast.forecast(
            shape, readings, lambda: Speed(5e14, 4e14, 4e12), dtype="bfloat16", weights=weights, chunk=8192,
            devices=devices, where="70B",
        )  # fmt: skip

    with pytest.raises(UsageError, match="and the device has 80"):
        words(cards[:1])
    assert "of 240 on 3 devices" in words(cards)[0]


def test_a_run_is_forecast_in_memory_and_time_and_refused_when_it_cannot_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    model = opened(f"hf:{model_folder(tmp_path)}")
    words = model.forecast([[(500, 10, 4), (200, 10, 4)], [(300, 10, 4)]])
    assert words[0].startswith("memory")
    assert words[1].startswith("time about")
    assert "measured on cpu" in words[1]
    monkeypatch.setattr(forecast, "device_memory", lambda device: (1 << 30) + (1 << 20))
    with pytest.raises(UsageError, match="tokens need"):
        model.forecast([[(5_000_000, 10, 4)]])


DAMAGE: dict[str, tuple[str, bytes | dict[str, Any]]] = {
    "weights cut off": ("model.safetensors", b"\x20\x01\0\0\0\0\0\0" + b'{"lm_head.weight":{"dtype":"F32"'),
    "weights of five bytes": ("model.safetensors", b"12345"),
    "weights that are noise": ("model.safetensors", bytes(range(256)) * 20),
    "weights of fewer layers": ("config.json", {"num_hidden_layers": 5}),
    "weights of another architecture": ("config.json", {"model_type": "gpt2"}),
    "configuration cut off": ("config.json", b'{"model_type": "llama",'),
    "configuration null": ("config.json", b"null"),
    "configuration not UTF-8": ("config.json", b'{"model_type": "\xe4"}'),
    "configuration with a list": ("config.json", {"model_type": ["llama"]}),
    "configuration with a text for a size": ("config.json", {"hidden_size": "many"}),
    "configuration without heads": ("config.json", {"num_attention_heads": 0}),
    "configuration with an odd dtype": ("config.json", {"dtype": "float99"}),
    "configuration with an odd rope": ("config.json", {"rope_parameters": "x"}),
    "generation settings cut off": ("generation_config.json", b"{"),
    "generation settings with a text": ("generation_config.json", {"eos_token_id": "x"}),
    "tokenizer cut off": ("tokenizer.json", b'{"version"'),
    "tokenizer without its unknown token": ("tokenizer.json", {"model": {"type": "WordLevel", "vocab": {"w8": 8}}}),
    "tokenizer of another model": (
        "tokenizer.json",
        {"model": {"type": "WordLevel", "vocab": {"w8": 8, "<unk>": 5000}, "unk_token": "<unk>"}},
    ),
    "template that fails": ("tokenizer_config.json", {"chat_template": "{{ 1 / 0 }}"}),
}


def damage(file: Path, by: bytes | dict[str, Any]) -> None:
    """Overwrites a file, or values in it."""
    file.write_bytes(by if isinstance(by, bytes) else json.dumps(json.loads(file.read_bytes()) | by).encode())


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_checkpoint_is_an_error_that_says_what_to_do(how: str, tmp_path: Path) -> None:
    name, by = DAMAGE[how]
    damage(model_folder(tmp_path) / name, by)

    def use() -> None:
        model = opened(f"hf:{tmp_path}")
        model.nll(model.tokenizer.encode("w8 some words that it does not know"), spans=[(1, 4)])

    with pytest.raises(LeadlineError) as caught:
        use()
    assert str(tmp_path) in caught.value.where
    assert caught.value.fix


def test_an_end_of_text_token_that_the_model_cannot_give_is_left_out(tmp_path: Path) -> None:
    damage(model_folder(tmp_path) / "generation_config.json", {"eos_token_id": [2, 99_999_999]})
    assert opened(f"hf:{tmp_path}").engine.stops == (2, 4)


def test_a_run_whose_answers_are_all_empty_ends_with_1_and_options_of_this_provider(say: Say, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    model.lm_head.weight.data[:] = -model.lm_head.weight.data[:1].abs()
    model.lm_head.weight.data[0] = 0  # either this padding token has the largest logit, or all have nearly the same
    model.save_pretrained(folder)
    said = say(
        "run", "niah", "--model", f"hf:{folder}?shared=false", "--lengths", "300", "--depths", "1", "--samples", "1",
        "--no-figure", "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert said.code == 1
    assert "the text is empty in 1 of 1 answer" in said.err
    assert "form=" in said.err
    assert "server" not in said.err
