"""Planted keys: after a run with a server that quotes every header, no output and no file holds the key."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.core.answers import Completion
from leadline.core.secrets import holds_secret, redact, redact_bytes, redact_used, redact_values, remember
from leadline.core.spec import make_spec
from leadline.run.measure import measure
from leadline.store.runs import read_records
from support.commands import Say
from support.leadline_process import write_haystack
from support.openai_documents import document_for, open_model
from support.raw_server import MODELS, RawServer, answering, whole

KEY = "planted/7f3a9c+XyZ0123"


@pytest.fixture
def server() -> Iterator[RawServer]:
    running = RawServer()
    yield running
    running.close()


def run(say: Say, server: RawServer, folder: Path, *words: str, options: str = "") -> tuple[int, str]:
    """`leadline run` of six samples into folder/run; its exit code and all of its output."""
    model = f"openai:fake?base_url={server.base_url}&tokenizer=bytes&window=64k{options}"
    grid = ("--lengths", "1k", "--depths", "3", "--samples", "2", "--attempts", "1", "--no-figure")
    hay = f"haystack={write_haystack(folder)}"
    code, shown, said = say("run", "niah", "--model", model, *grid, "--set", hay, "--out", str(folder / "run"), *words)
    return code, shown + said


def everything(folder: Path) -> str:
    return "\n".join(f"{p.name}\n{p.read_bytes().decode('latin-1')}" for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize(("variable", "ending"), [("GATEWAY", ""), ("GATEWAY_API_KEY", " \r\n")])
def test_a_key_that_a_server_quotes_is_written_and_shown_nowhere(
    say: Say, server: RawServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, ending: str
) -> None:
    monkeypatch.setenv(variable, KEY + ending)
    asked = count()

    def quote() -> bytes:
        number = next(asked)
        if number < 2:  # the two requests of the opening
            return whole(answering("x", model=f"fake {server.head}"))
        error = {"error": {"message": f"you sent {server.head}", "type": f"Bearer {KEY}"}}
        number %= 4
        if number == 0:
            return whole(json.dumps(error).encode(), status=400)
        if number == 1:
            return whole(json.dumps(error).replace("/", "\\/").encode(), status=401)
        escaped = "".join(f"\\u{ord(c):04x}" for c in KEY).encode()
        body = answering(f"7 {server.head}", model=server.head, system_fingerprint=KEY)
        return whole(body.replace(KEY.encode(), escaped) if number == 2 else body)

    server.write = lambda sock: sock.sendall(quote())
    monkeypatch.setitem(MODELS, "data", [{"id": "fake", "root": KEY, "meta": {"ftype": KEY}, "owned_by": KEY}])
    _, shown = run(say, server, tmp_path, options=f"&api_key_env={variable}")
    assert f"Bearer {KEY}" in server.head  # it was sent, without the line break
    records = list(read_records(tmp_path / "run"))
    assert len(records) == 6
    assert any(record.failed for record in records)
    page, table = str(tmp_path / "p.html"), str(tmp_path / "t.csv")
    for words in (["--json"], ["-o", page, "--data", table]):
        _, out, said = say("report", str(tmp_path / "run"), *words)
        shown += out + said
    found = shown + everything(tmp_path)
    for form in (KEY, KEY.replace("/", "\\/"), "".join(f"\\u{ord(c):04x}" for c in KEY)):
        assert form not in found
    assert "***" in found


@pytest.mark.parametrize(
    "options",
    [
        '&extra={"api_key": "planted-7f3a9c0123"}',
        '&extra={"headers": {"Authorization": "Bearer planted-7f3a9c0123"}}',
        "&extra=%7B%22api_key%22%3A%20%22planted-7f3a9c0123%22%7D",
        "&api_key_env=gsk_planted7f3a9c0123",
        "&api_key_env=sk-planted-7f3a9c0123",
        "&api_key_env=planted7f3a9c0123456",
        "&api_key=planted-7f3a9c0123",
    ],
)
def test_a_key_among_the_options_is_refused_before_anything_is_written(
    say: Say, server: RawServer, tmp_path: Path, options: str
) -> None:
    code, shown = run(say, server, tmp_path, options=options)
    assert code == 64, shown
    found = shown + everything(tmp_path)
    assert "7f3a9c" not in found


SECRET = "q7f3a9c0123Zp"
PLANTED = {
    **{
        f"query {name}": f"&base_url=http://127.0.0.1:9/v1%3F{name}%3D{SECRET}"
        for name in ("sig", "code", "subscription-key", "key", "api-version", "X-Amz-Signature", "anything")
    },
    "fragment": f"&base_url=http://127.0.0.1:9/v1%23{SECRET}",
    "user": f"&base_url=http://me:{SECRET}@127.0.0.1:9/v1",
    "path": "&base_url=http://127.0.0.1:9/q7f3a9c0123Zp5t6u7v8w9x/v1",
    "known key in the path": "&base_url=http://127.0.0.1:9/sk-q7f3a9c0123Zp/v1",
    **{
        f"extra {name}": f'&extra={{"{name}": "{SECRET}"}}'
        for name in (
            "private_key",
            "credentials",
            "pwd",
            "auth",
            "x-api-key",
            "sig",
            "code",
            "password",
            "access_token",
        )
    },
    "a list with a bearer": f'&extra={{"metadata": ["x", "Bearer {SECRET}"]}}',
    "deep": f'&extra={{"a": [{{"b": {{"secret": "{SECRET}"}}}}]}}',
    "a private key": f'&extra={{"note": "-----BEGIN PRIVATE KEY-----{SECRET}"}}',
    "a token": '&extra={"user": "ghp_q7f3a9c0123Zp45678"}',
    "variable": f"&base_url_env=sk-{SECRET}xyz",
    "headers": f"&headers_env=Bearer%20{SECRET}",
}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    values = {"model": "sim:perfect?window=2k", "tasks": "niah", "lengths": "1k", "depths": 1, "samples": 1}
    return measure(make_spec(values), tmp_path_factory.mktemp("finished") / "run").folder


@pytest.mark.parametrize("name", PLANTED)
def test_a_secret_in_the_configuration_is_refused_with_advice_and_is_nowhere(
    say: Say, finished_run: Path, tmp_path: Path, name: str
) -> None:
    for command in ("run", "plan", "judge"):
        model = f"openai:fake?tokenizer=bytes&window=64k{PLANTED[name]}"
        words = ["niah", "--model", model, "--lengths", "1k", "--samples", "1", "--out", str(tmp_path / "run")]
        if command == "judge":
            shutil.copytree(finished_run, tmp_path / "good")
            words = [str(tmp_path / "good"), "--with", model]
        code, out, err = say(command, *words)
        assert code == 64, (name, command, err)
        assert "7f3a9c" not in out + err + everything(tmp_path)
        assert "_env" in err or "environment" in err


FIELDS = (
    "api_key apiKey api-key apikey x-api-key X-Api-Key access_key accessKey secret_key secret "
    "client_secret clientSecret private_key privateKey password passwd passphrase pwd db_pwd credentials "
    "credential auth authorization proxy_authorization bearer cookie set_cookie session signature sig "
    "code jwt token access_token refresh_token id_token auth_token hf_token subscription_key "
    "Ocp-Apim-Subscription-Key aws_secret_access_key encryption_key signing_key master_key user_key "
    "service_account_key webhook_secret"
).split()
QUERIES = (
    "sig code key subscription-key api-version token access_token X-Amz-Signature X-Amz-Credential se sp "
    "sv anything h auth"
).split()
BEGINNINGS = "sk- sk-proj- gsk_ hf_ xai- r8_ pplx- nvapi- glpat- ghp_ github_pat_ AIza AKIA xoxb-".split()


def planted_models() -> Iterator[str]:
    """A key in every field, in fields of fields, in queries, and keys of known services in every part of a model."""
    rest = "&tokenizer=bytes&window=64k"
    at_server = f"openai:fake?base_url=http://127.0.0.1:9/v1{rest}"
    for name in FIELDS:
        yield f'{at_server}&extra={{"{name}": "{SECRET}"}}'
        yield f'{at_server}&extra={{"a": [{{"{name}": ["{SECRET}"]}}]}}'
    for name in QUERIES:
        yield f"openai:fake?base_url=http://127.0.0.1:9/v1%3F{name}%3D{SECRET}{rest}"
    for beginning in BEGINNINGS:
        key = beginning + SECRET
        yield f"openai:{key}?base_url=http://127.0.0.1:9/v1{rest}"
        yield f'{at_server}&extra={{"user": "{key}"}}'
        yield f"openai:fake?base_url=http://127.0.0.1:9/{key}/v1{rest}"
        yield f"{at_server}&api_key_env={key}"


@pytest.mark.slow
def test_165_planted_keys_are_refused_and_are_nowhere(say: Say, tmp_path: Path) -> None:
    words = ["--lengths", "1k", "--depths", "1", "--samples", "1", "--attempts", "1", "--no-figure"]
    models = list(planted_models())
    assert len(models) == 165
    for model in models:
        code, out, err = say("run", "niah", "--model", model, *words, "--out", str(tmp_path / "run"))
        assert code == 64, (model, err)
        assert "7f3a9c" not in out + err + everything(tmp_path), model
    harmless = 'openai:fake?base_url=http://127.0.0.1:9/v1&tokenizer=bytes&window=64k&extra={"user": "somebody"}'
    assert say("run", "niah", "--model", harmless, *words, "--out", str(tmp_path / "run")).code == 69


def test_a_model_name_that_is_a_key_is_refused(say: Say, tmp_path: Path) -> None:
    for model in ("openai:sk-q7f3a9c0123Zp", "hf:hf_q7f3a9c0123ZpABCDEF", "sim:perfect?seed=1&x=ghp_q7f3a9c0123Zp"):
        code, out, err = say("run", "niah", "--model", model, "--lengths", "1k", "--out", str(tmp_path / "run"))
        assert code == 64, model
        assert "7f3a9c" not in out + err + everything(tmp_path), model


def test_the_url_and_headers_of_the_environment_are_sent_and_written_nowhere(
    say: Say, server: RawServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_URL", f"{server.base_url}?sig={SECRET}")
    monkeypatch.setenv("GATEWAY_HEADERS", json.dumps({"X-Gateway": "h5h5h5secret", "X-Short": "zq9x7"}))
    server.write = lambda sock: sock.sendall(whole(answering(
        f"7 {server.head} {base64.b64encode(f'user:{SECRET}'.encode()).decode()}", model=server.head
    )))  # fmt: skip
    model = "openai:fake?base_url_env=GATEWAY_URL&headers_env=GATEWAY_HEADERS&tokenizer=bytes&window=64k"
    hay = f"haystack={write_haystack(tmp_path)}"
    code, out, err = say("run", "niah", "--model", model, "--lengths", "1k", "--depths", "2", "--samples", "1",
                         "--no-figure", "--set", hay, "--out", str(tmp_path / "run"))  # fmt: skip
    assert code == 1, err  # the server's counts are made up
    assert len(list(read_records(tmp_path / "run"))) == 2
    assert f"sig={SECRET}" in server.head.partition("\r\n")[0]
    assert "h5h5h5secret" in server.head
    found = out + err + everything(tmp_path / "run")
    found += "".join(say("report", str(tmp_path / "run"), "--json")[1:])
    for shift in range(3):
        coded = base64.b64encode(b" " * shift + SECRET.encode()).decode()[2:-4]
        assert coded not in found
    for secret in (SECRET, "h5h5h5secret", "zq9x7"):
        assert secret not in found
    assert "GATEWAY_URL" in everything(tmp_path / "run")


@given(before=st.text(max_size=5), after=st.text(max_size=5))
def test_a_secret_in_base_64_is_redacted_wherever_it_begins(before: str, after: str) -> None:
    remember(SECRET)
    coded = base64.b64encode(f"{before}{SECRET}{after}".encode()).decode()
    assert redact_used(f"x {coded} y") != f"x {coded} y"


def test_a_short_secret_is_redacted_as_a_word_and_never_in_a_number() -> None:
    remember("k8151")
    remember("none")
    value = {"text": "key k8151, not k81516 or none", "n": 8151}
    assert redact_values(value) == {"text": "key ***, not k81516 or none", "n": 8151}


@pytest.mark.parametrize("key", ["lamp", "kitchen", "brave-lantern", "7654321"])
def test_a_key_that_is_an_ordinary_word_or_number_damages_no_answer(key: str) -> None:
    """It would be graded as another answer. Messages, where nothing is graded, hide it."""
    remember(key)
    assert redact_used(f"It is {key}.") == f"It is {key}."
    assert redact_values({"answer": key, key: 1}) == {"answer": key, key: 1}
    assert redact_bytes(f'{{"content": "{key}"}}'.encode()) == f'{{"content": "{key}"}}'.encode()
    assert redact(f"401: the key {key} is not known") == "401: the key *** is not known"


def test_the_value_of_the_key_in_other_options_is_refused(
    say: Say, server: RawServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY", "planted-7f3a9c0123")
    options = '&api_key_env=GATEWAY&extra={"user": "planted-7f3a9c0123"}'
    code, shown = run(say, server, tmp_path, options=options)
    assert code == 64, shown
    assert "7f3a9c" not in shown + everything(tmp_path)


@pytest.mark.slow
def test_the_password_of_a_tracker_is_not_shown(say: Say, server: RawServer, tmp_path: Path) -> None:
    place = "mlflow:http://user:pl@nted-7f3a9c@127.0.0.1:9"
    _, shown = run(say, server, tmp_path, "--log-to", place)
    _, out, said = say("log", str(tmp_path / "run"), "--to", place)
    found = shown + out + said + everything(tmp_path)
    assert "127.0.0.1:9" in shown
    assert "7f3a9c" not in found
    assert "pl@nted" not in found


def test_a_variable_that_is_not_set_is_said(server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GATEWAY_KEY", raising=False)
    model = open_model(server.base_url, api_key_env="GATEWAY_KEY")
    assert "the environment variable GATEWAY_KEY is not set: no key is sent" in model.card.notes
    monkeypatch.setenv("GATEWAY_KEY", "abcdefgh")
    assert not any("GATEWAY_KEY" in note for note in open_model(server.base_url, api_key_env="GATEWAY_KEY").card.notes)


@pytest.mark.parametrize(
    "text",
    [
        'extra={"min_tokens": 1, "stop_token_ids": [1, 2]}',
        'extra={"eos_token": "</s>"}',
        "base_url=http://127.0.0.1:1/v1&max_tokens=5",
        "openai:Qwen/Qwen3-8B",
    ],
)
def test_ordinary_options_are_no_secrets(text: str) -> None:
    assert not holds_secret(text)


def test_a_password_with_an_at_sign_is_redacted_whole() -> None:
    assert redact("mlflow:http://me:p@ss@host:5000/x") == "mlflow:http://***@host:5000/x"


def test_the_model_and_fingerprint_of_the_reply_are_on_the_record_and_a_change_is_said(
    say: Say, server: RawServer, tmp_path: Path
) -> None:
    model = open_model(server.base_url)
    server.write = lambda sock: sock.sendall(whole(answering("7", model="fake-2", system_fingerprint="fp_1")))
    document, probe = document_for(model)
    outcome = model.answer(document, [probe])[0].outcome
    assert isinstance(outcome, Completion)
    assert (outcome.model, outcome.system_fingerprint) == ("fake-2", "fp_1")
    asked = count()
    server.write = lambda sock: sock.sendall(
        whole(answering("7", model="fake", system_fingerprint=f"fp_{int(next(asked) > 4)}"))
    )
    _, shown = run(say, server, tmp_path, "--workers", "1", "--no-checks")
    assert "the server's model changed during the run: answers are from fake fp_0 (3), fake fp_1 (3)" in shown
    served = {r.outcome.system_fingerprint for r in read_records(tmp_path / "run") if isinstance(r.outcome, Completion)}
    assert served == {"fp_0", "fp_1"}


def test_a_key_that_a_server_breaks_or_shortens_is_hidden() -> None:
    key = "zq-planted-0123456789abcdefghij"
    remember(key)
    for quoted in (f"{key[:20]}\n{key[20:]}", f"{key[:17]}...", f"...{key[-17:]}"):
        shown = redact(f"bad key {quoted} was sent")
        assert not any(key[i : i + 12] in shown for i in range(len(key) - 12)), shown
