"""`leadline doctor` and the checks before a run, as commands: exit codes, JSON, notes, secrets, servers that hang."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from leadline.core.errors import ServerAway
from leadline.core.registry import ModelName, provider
from leadline.features.doctor import checks as checks_module
from leadline.features.doctor import serving
from leadline.features.doctor.checks import CHECKS, Check, examine
from leadline.features.doctor.findings import CheckResult
from leadline.features.doctor.serving import is_same_model
from leadline.models.openai import discovery
from leadline.run import events
from leadline.store.manifest import read_manifest
from support.commands import Say
from support.fake_server import FakeServer
from support.openai_documents import open_model
from support.raw_server import MODELS, RawServer, answering, whole
from support.reading_server import SYSTEM, Planted, ReadingServer

KEY = "planted/7f3a9c+XyZ0123"


def name_of(server: FakeServer | RawServer, options: str = "") -> str:
    return f"openai:fake?base_url={server.base_url}&tokenizer=bytes{options}"


# --- the command


def test_a_clean_server_exits_with_0_and_findings_with_1(say: Say) -> None:
    with ReadingServer() as server:
        done = say("doctor", "--model", name_of(server), "--json")
        assert done.code == 0, done.out
        found = json.loads(done.out)
        assert [r["check"] for r in found["results"]] == [check.id for check in CHECKS]
        assert (found["findings"], found["model"], found["window"]) == (0, "fake", 4096)
        assert found["numbers"]["flip_rate"] == 0
        assert "20 of 20" in done.err
        server.planted = Planted(cut="front", model="other")
        done = say("doctor", "--model", name_of(server), "--check", "truncation", "--check", "model_name")
    assert done.code == 1
    for text in ("silent truncation", "FINDING", "the beginning", "effect:", "fix:", "another-model-7b", "2 findings"):
        assert text in done.out, text


def test_checks_that_cannot_be_made_say_why_and_are_no_findings(say: Say) -> None:
    with ReadingServer(Planted(logprobs="none", receipts="none", cache="silent"), kind="plain") as server:
        done = say("doctor", "--model", name_of(server, "&window=4k"), "--json")
    assert done.code == 0, done.out
    why = {r["check"]: r["evidence"] for r in json.loads(done.out)["results"] if r["status"] == "not_made"}
    assert set(why) == {"tokenizer", "receipts", "template", "system_prompt", "prefix", "logprobs", "prefix_cache",
                        "cached_answers", "preemption"}  # fmt: skip
    assert "no token counts" in why["receipts"]
    assert "no log-probabilities" in why["logprobs"]


def test_an_unknown_check_and_a_wrong_length_are_refused(say: Say) -> None:
    code, _, said = say("doctor", "--model", "sim:perfect", "--check", "truncaton")
    assert (code, "did you mean 'truncation'?" in said) == (64, True), said
    assert say("doctor", "--model", "sim:perfect", "--longest", "many").code == 64
    code, _, said = say("doctor", "--model", "openai:x?base_url=http://u:secretpassword@127.0.0.1:9/v1")
    assert (code, "secretpassword" in said) == (64, False)


@pytest.mark.parametrize("model", ["sim:perfect", "sim:cliff?window=2k&tokenizer=bytes"])
def test_a_model_in_this_process_has_the_checks_that_make_sense(say: Say, model: str) -> None:
    done = say("doctor", "--model", model, "--longest", "2k", "--json")
    assert done.code == 0, done.out
    made = {r["check"] for r in json.loads(done.out)["results"] if r["status"] == "ok"}
    assert made >= {"truncation", "determinism", "logprobs"}


@pytest.mark.slow
def test_a_real_checkpoint_in_this_process_is_checked_for_what_makes_sense(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from support.tiny_models import model_folder

    name = ModelName.parse(f"hf:{model_folder(tmp_path / 'tiny')}")
    found = examine(provider(name).open(name.name), longest=512, seed=1)
    statuses = {result.check: result.status for result in found.results}
    assert not found.findings
    assert {check for check, status in statuses.items() if status == "ok"} == {
        "window", "truncation", "determinism", "logprobs",
    }  # fmt: skip


def test_the_longest_prompt_is_limited(say: Say) -> None:
    with ReadingServer() as server:
        done = say("doctor", "--model", name_of(server), "--longest", "1500", "--check", "truncation", "--json")
        assert server.longest == 1500 - 16
    assert "1,500" in done.out


# --- servers that do not answer


@pytest.fixture
def hanging() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"


def test_a_server_that_hangs_is_said_and_given_up(say: Say, hanging: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "OPENING_SECONDS", 0.5)
    monkeypatch.setattr(events, "FIRST_SECONDS", 0.05)
    code, shown, said = say("doctor", "--model", f"openai:x?base_url={hanging}&tokenizer=bytes")
    assert (code, shown) == (69, "")
    assert f"waiting for GET {hanging}/models" in said
    assert "no server answers" in said
    assert "fix:" in said


def test_a_server_that_opens_and_then_answers_nothing_gives_no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "ANSWER_SECONDS", 0.3)
    with ReadingServer() as server:
        model = open_model(server.base_url)
        server.planted = Planted(hangs=True)
        for cheap in (True, False):
            with pytest.raises(ServerAway, match=r"small request: no answer within 0\.3 seconds"):
                examine(model, cheap=cheap)
        model.close()


def test_errors_of_a_server_end_in_checks_that_were_not_made(say: Say) -> None:
    server = RawServer()
    server.write = lambda sock: sock.sendall(whole(b'{"error": {"message": "no such thing"}}', status=400))
    model = name_of(server).replace("&tokenizer=bytes", "&tokenizer=bytes&window=4k")
    code, _, said = say("doctor", "--model", model)
    server.close()
    assert code == 69  # the opening asks for two counts already
    assert "no such thing" in said


# --- before a run


def run(say: Say, server: FakeServer, folder: Path, *words: str) -> tuple[int, str]:
    grid = ("--lengths", "1k", "--depths", "2", "--samples", "1", "--no-figure", "--set", "haystack=noise")
    done = say("run", "niah", "--model", name_of(server), *grid, "--out", str(folder), *words)
    return done.code, done.err


def test_a_run_says_what_the_cheap_checks_find_and_keeps_it(say: Say, tmp_path: Path) -> None:
    with ReadingServer(Planted(system=SYSTEM, model="other")) as server:
        _, said = run(say, server, tmp_path / "run")
        assert "hidden system prompt: every prompt has 141 tokens that we did not send" in said
        assert "another-model-7b" in said
        notes = read_manifest(tmp_path / "run").model["notes"]
        assert any("hidden system prompt" in note for note in notes)
        asked = server.asked
        _, said = run(say, server, tmp_path / "run")
        assert (server.asked, "hidden system prompt" in said) == (asked, False)  # it was complete
        _, said = run(say, server, tmp_path / "other", "--no-checks")
        assert "hidden system prompt" not in said


def test_the_cheap_checks_take_about_ten_small_requests_and_find_nothing_on_a_faithful_server() -> None:
    with ReadingServer() as server:
        model = open_model(server.base_url)
        found = examine(model, cheap=True, seed=1)
        model.close()
    assert not found.findings
    assert found.requests <= 10
    assert found.prompt_tokens < 5_000


# --- secrets and names


def test_a_key_that_a_server_quotes_is_in_no_output(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """In answers, errors, names and headers."""
    monkeypatch.setenv("GATEWAY_KEY", KEY)
    server, asked = RawServer(), count()

    def quote() -> bytes:
        number = next(asked)
        if number > 2 and number % 5 == 0:
            return whole(json.dumps({"error": {"message": f"you sent {server.head}"}}).encode(), status=400)
        body = answering(f"7 {server.head}", model=f"fake {KEY}", system_fingerprint=f"{KEY}{number % 3}")
        return whole(body, headers=f"Via: {KEY}\r\nx-ratelimit-limit-requests: {KEY}\r\n")

    server.write = lambda sock: sock.sendall(quote())
    monkeypatch.setitem(MODELS, "data", [{"id": "fake", "owned_by": KEY}])
    shown = ""
    for words in ((), ("--json",)):
        done = say("doctor", "--model", name_of(server, "&window=2k&api_key_env=GATEWAY_KEY"), *words)
        assert done.code == 1, done
        shown += done.out + done.err
    server.close()
    assert f"Bearer {KEY}" in server.head
    assert "***" in shown
    for form in (KEY, KEY.replace("/", "\\/"), "7f3a9c"):
        assert form not in shown


@pytest.mark.parametrize(
    ("asked", "named", "same"),
    [
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("org/Model-7B", "model-7b", True),
        ("model", "/models/model.gguf", True),
        ("llama3", "llama3:latest", True),
        ("gpt-4o", "gpt-4o-mini", False),
        ("model-7b", "model-70b", False),
        ("fake", "other", False),
    ],
)
def test_a_date_or_a_folder_is_no_other_model(asked: str, named: str, same: bool) -> None:
    assert is_same_model(asked, named) is same


def test_the_documentation_lists_every_check() -> None:
    page = (Path(__file__).parents[3] / "docs" / "server-checks.md").read_text()
    listed = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert listed == [check.id for check in CHECKS]


# --- slow servers


def test_results_are_shown_as_they_come_and_an_estimate_before(say: Say) -> None:
    with ReadingServer() as server:
        done = say("doctor", "--model", name_of(server), "--check", "tokenizer", "--check", "truncation")
    assert done.code == 0, done.err
    assert re.search(r"about .*: 14 requests, 4 of them of up to 4k tokens; --quick", done.err)
    lines = done.out.splitlines()
    assert lines[0].startswith("fake on ")
    assert lines[1].startswith("ok        tokenizer (tokenizer): ")
    assert lines[2].startswith("ok        silent truncation (truncation): ")


def test_a_quick_check_up_sends_small_requests_only(say: Say) -> None:
    with ReadingServer() as server:
        done = say("doctor", "--model", name_of(server), "--quick", "--json")
        assert server.longest < 1024
    made = [result["check"] for result in json.loads(done.out)["results"]]
    assert made == [check.id for check in CHECKS if check.cheap]
    assert "about" not in done.err


def test_after_ctrl_c_the_same_command_makes_only_the_missing_checks(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    make = checks_module._make
    made: list[str] = []

    def uninterrupted(check: Check, *rest: Any) -> CheckResult:
        made.append(check.id)
        return make(check, *rest)

    def interrupted(check: Check, *rest: Any) -> CheckResult:
        if check.id == "prefix":
            raise KeyboardInterrupt
        return uninterrupted(check, *rest)

    with ReadingServer() as server:
        monkeypatch.setattr(checks_module, "_make", interrupted)
        stopped = say("doctor", "--model", name_of(server), "--quick")
        assert stopped.code == 130, stopped.err
        assert "interrupted; 4 checks made and kept" in stopped.err
        assert "run the same command again" in stopped.err
        assert stopped.out.count("ok  ") == 4
        monkeypatch.setattr(checks_module, "_make", uninterrupted)
        whole = say("doctor", "--model", name_of(server), "--quick")
        assert whole.code == 0, whole.err
        assert "resuming: 4 checks" in whole.err
        assert made == [check.id for check in CHECKS if check.cheap]
        assert all(f" ({check.id}): " in whole.out for check in CHECKS if check.cheap)
        again = say("doctor", "--model", name_of(server), "--quick")
        assert "resuming" not in again.err
