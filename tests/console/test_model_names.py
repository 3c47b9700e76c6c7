"""What people type for a model: an address, a folder, a name on the hub."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.console.model_names import resolve_model
from leadline.core.errors import LeadlineError, ServerError, UsageError

LISTED: list[str] = []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path == "/v1/models"
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": name} for name in LISTED]}).encode() if found else b"")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_address_is_the_only_model_that_its_server_lists(address: str) -> None:
    LISTED[:] = ["org/model"]
    said: list[str] = []
    wanted = f"openai:org/model?base_url={address}/v1"
    assert resolve_model(address, said.append) == wanted
    assert said == [f"model: {wanted}"]
    assert resolve_model(f"{address}/v1/?tokenizer=here") == f"{wanted}&tokenizer=here"


def test_several_models_are_an_error_with_the_choices(address: str) -> None:
    LISTED[:] = ["a", "b"]
    with pytest.raises(UsageError, match="2 models") as error:
        resolve_model(address)
    assert f"openai:b?base_url={address}/v1" in error.value.fix


def test_no_server_is_an_error_that_names_the_address() -> None:
    with pytest.raises(ServerError) as error:
        resolve_model("http://127.0.0.1:9")
    assert "127.0.0.1:9/v1/models" in error.value.where


@pytest.mark.parametrize(
    "address", ["http://[", "http://[::1", "http://127.0.0.1:port", "http://127.0.0.1:99999", "http://", "http://a b"]
)
def test_what_is_no_address_is_an_error_and_not_a_fault(address: str) -> None:
    with pytest.raises(LeadlineError) as caught:
        resolve_model(address)
    assert caught.value.exit_code in (64, 69)
    if "[" in address or "port" in address:
        assert caught.value.what.endswith("is not an address")


def test_a_server_that_does_not_speak_http_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
                connection.close()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(ServerError):
            resolve_model(f"http://127.0.0.1:{server.getsockname()[1]}")


def test_folders_and_names_on_the_hub_are_transformers_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    (tmp_path / "org" / "name" / "config.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    (tmp_path / "weights.gguf").write_text("")
    monkeypatch.chdir(tmp_path)
    assert resolve_model("./org/name?dtype=bf16") == "hf:./org/name?dtype=bf16"
    assert resolve_model("HuggingFaceTB/SmolLM2-135M") == "hf:HuggingFaceTB/SmolLM2-135M"
    assert resolve_model("sim:perfect?window=8k") == "sim:perfect?window=8k"
    for text, fix in (("org/name", "hf:./org/name"), ("weights.gguf", "llama-server"), ("./empty", "checkpoint"),
                      ("gpt-4o", "server's address")):  # fmt: skip
        with pytest.raises(UsageError) as error:
            resolve_model(text)
        assert fix in error.value.fix
