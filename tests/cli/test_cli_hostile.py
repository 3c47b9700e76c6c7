"""Damaged files, odd options and hostile names: a clear error or a clean table, never a crash or a raw escape."""

from __future__ import annotations

import json
import resource
import unicodedata
from pathlib import Path

import pytest

from leadline.core.errors import TokenizerError
from leadline.text.chat import ChatTemplate
from support.commands import Say
from support.fake_server import FakeServer, Faults
from support.fuzz import fuzz, good_files
from support.fuzz_files import CHAT, ENDLESS, HARMFUL_TEXT
from support.leadline_process import call
from support.planted_runs import decay, planted_records, write_run

CALLS = 40
"""In each of the parts below; `python tests/support/fuzz.py 5000` makes more."""


@pytest.mark.slow
@pytest.mark.parametrize("part", [1, 2])
def test_fuzzed_calls_end_in_a_result_or_in_what_where_and_fix(part: int, tmp_path: Path) -> None:
    good = good_files(tmp_path / "good")
    assert [str(problem) for problem in fuzz(good, seed=10 + part, calls=CALLS)] == []


def harmful(text: str) -> list[str]:
    return [f"U+{ord(c):04X}" for c in text if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cf", "Cs")]


def test_names_in_tables_submissions_and_manifests_are_shown_without_raw_escapes(say: Say, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(f'model,4k,8k,avg\n"{HARMFUL_TEXT}",90,80,1\n', encoding="utf-8")
    scores = {f"{HARMFUL_TEXT}{n}": n / 10 for n in range(5)}
    (tmp_path / "scores.json").write_text(json.dumps(scores))
    (tmp_path / "targets.json").write_text(json.dumps(scores | {f"{HARMFUL_TEXT} alone": 1}))
    records = list(planted_records(decay, lengths=[1024], depths=[0.5], samples=3, model=f"sim:{HARMFUL_TEXT}"))
    write_run(tmp_path / "a", records, name=HARMFUL_TEXT)
    other = list(planted_records(decay, lengths=[1024], depths=[0.5], samples=3, model="sim:b"))
    manifest = json.loads((write_run(tmp_path / "b", other) / "manifest.json").read_text())
    manifest["fingerprints"][f"template {HARMFUL_TEXT}"] = HARMFUL_TEXT
    (tmp_path / "b/manifest.json").write_text(json.dumps(manifest))
    for words in (
        ["summarize", "table.csv"],
        ["summarize", "table.csv", "--json"],
        ["correlate", "scores.json", "targets.json", "--resamples", "100"],
        ["correlate", "scores.json", "targets.json", "--resamples", "100", "--json"],
        ["compare", "a", "b", "--anyway"],
        ["compare", "a", "b", "--anyway", "--markdown"],
        ["compare", "a", "b", "--anyway", "--json"],
        ["compare", "a", "b"],
        ["report", "a", "--json"],
        ["watch", "a"],
    ):
        said = say(*words)
        assert harmful(said.out + said.err) == [], words
        assert "owned" in said.out + said.err, "the name is still there"
        if "--json" in words:
            assert "owned" in json.dumps(json.loads(said.out))


@pytest.mark.parametrize(
    "source",
    [
        ENDLESS,
        "{% for a in 'x' * 99999 %}{% for b in 'x' * 99999 %}{% endfor %}{% endfor %}",
        "{{ 'x' * 10**12 }}",
        pytest.param("{{ 9 ** (9 ** 9) }}", marks=pytest.mark.slow),  # ends after RENDER_SECONDS
        "{{ 'x'.center(10**12) }}",
        "{{ 'x' | center(10**12) }}",
        "{{ '%0999999999999d' | format(1) }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{{ messages + 1 }}",
    ],
)
def test_a_chat_template_that_does_not_end_or_grows_without_bound_is_an_error(source: str) -> None:
    with pytest.raises(TokenizerError, match="does not render"):
        ChatTemplate(source).frame()


def test_a_usual_chat_template_is_rendered_as_before() -> None:
    frame = ChatTemplate(CHAT).frame()
    assert (frame.before, frame.after) == ("<|start|>user\n", "<|end|>\n<|start|>assistant")


@pytest.mark.parametrize(
    ("name", "data", "words", "line"),
    [
        ("latin.csv", "model,4k\none,9\ncafé,8\n".encode("latin-1"), ["summarize", "latin.csv"], "latin.csv:3"),
        ("cut.csv", b'model,4k\none,9\n\n"two,8\n', ["summarize", "cut.csv"], "cut.csv:4"),
        ("blank.csv", b"\n , \n", ["summarize", "blank.csv"], "blank.csv"),
        ("word.csv", b"model,4k\n\none,9\ntwo,high\n", ["summarize", "word.csv"], "word.csv:4, column 4k"),
        ("deep.jsonl", b'{"pred": "a", "answers": ["a"]}\n' + b"[" * 99999,
         ["score", "deep.jsonl", "--as", "longbench"], "deep.jsonl:2"),
        ("qa_1.jsonl", b'{"pred": "a", "outputs": ["a"]}\n' + b"[" * 99999, ["score", "qa_1.jsonl"], "qa_1.jsonl:2"),
        ("bad.toml", b"samples = 1\nlengths = [1,\n]\nmodel = \n", ["plan", "bad.toml"], "bad.toml:4"),
        ("models.json", b"[\n1\n2]", ["plan", "niah", "--models", "models.json"], "models.json:3"),
        ("scores.json", b'{"a": 1,\n\n"b" 2}', ["correlate", "scores.json", "scores.json"], "scores.json:3"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_named_with_its_line(
    say: Say, tmp_path: Path, name: str, data: bytes, words: list[str], line: str
) -> None:
    (tmp_path / name).write_bytes(data)
    said = say(*words)
    assert said.code in (64, 66), said.err
    assert f"where: {line}\n" in said.err
    assert "fix:   " in said.err


def test_a_damaged_manifest_is_named_with_its_line(say: Say, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", list(planted_records(decay, lengths=[1024], depths=[0.5], samples=1)))
    path = folder / "manifest.json"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:5], "junk", *lines[5:]]))
    assert "manifest.json:6\n" in say("report", "run").err
    path.write_text("\n".join(lines).replace('"depths": [', '"depths": ["deep",'))
    assert "the manifest is damaged: Expected `float`, got `str` - at `$.depths[0]`" in say("report", "run").err


def test_values_that_no_run_can_have_are_refused_at_once(say: Say) -> None:
    for words, complaint in (
        (["--depths", str(2**63)], "a depth grid has 1 to 10,000 depths"),
        (["--timeout", "1e400"], "limits.timeout: must be at most 1,000,000"),
        (["--lengths", "9" * 400], "too large"),
        (["--samples", "0"], "samples: must be at least 1, got 0"),
        (["--reading", "freshh"], "did you mean 'fresh'?"),
        (["--model", "openai:m?base_url=http://[::1"], "http://[::1"),
    ):
        model = () if "--model" in words else ("--model", "sim:perfect?tokenizer=bytes")
        said = say("plan", "niah", *model, "--lengths", "512", *words)
        assert said.code == 64, said.err
        assert complaint in said.err
        assert "fix:" in said.err


# --- limits of the process, as batch clusters set them


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "limit"), [(resource.RLIMIT_NOFILE, 48), (resource.RLIMIT_AS, 1 << 30)])
def test_a_run_with_more_workers_than_the_process_may_have_uses_fewer_and_says_so(
    kind: int, limit: int, tmp_path: Path
) -> None:
    with FakeServer(Faults(delay_seconds=0.05), sockets=True) as server:
        model = f"openai:fake?base_url={server.base_url}&tokenizer=bytes&api=completions"
        words = ["--lengths", "1k", "--depths", "2", "--samples", "128", "--workers", "256", "--set", "haystack=noise"]
        code, out, err = call(
            "run", "niah", "--model", model, *words, "--no-figure", "--out", str(tmp_path / "run"), limits={kind: limit}
        )
        assert code == 0, err
        assert "256 answered, 0 failed" in out
        assert "instead of 256" in err
        assert server.peak_in_flight < 256


@pytest.mark.slow
@pytest.mark.parametrize("words", [["run", "niah", "--model", "sim:cliff?tokenizer=bytes"], ["report"]])
def test_a_figure_that_the_memory_limit_forbids_is_a_note_after_the_table(words: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    if words == ["report"]:
        records = list(planted_records(decay, lengths=[1024], depths=[0.5], samples=3, model="sim:b"))
        words = ["report", str(write_run(folder, records))]
    else:
        words = [*words, "--lengths", "1k", "--depths", "1", "--samples", "2", "--out", str(folder)]
    code, out, err = call(*words, limits={resource.RLIMIT_AS: 2 << 30})
    assert code == 0, err
    assert "planned" in out
    assert "no figure" in err or "no heatmap" in err
    assert "ulimit -v" in err


# --- the cache folder


def _damage(file: Path, kind: str) -> None:
    data = file.read_bytes()
    file.unlink()
    if kind == "a folder":
        file.mkdir()
    elif kind == "one byte":
        at = len(data) * 2 // 3
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    else:
        file.write_bytes({"empty": b"", "garbage": b"\x00garbage" * 50, "cut": data[: len(data) // 2]}[kind])


DAMAGES = ("empty", "garbage", "cut", "one byte", "a folder")


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 2])
def test_a_damaged_cache_file_is_named_and_made_anew(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled grammars, pieces of the standard library, counted tokens: every file that two runs leave behind."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("LEADLINE_CACHE", str(cache))

    def build(number: int) -> tuple[str, list[bytes]]:
        said, made = "", []
        for haystack in ("chat", "python-docs"):
            out = tmp_path / f"{haystack}{number}.jsonl"
            options = ["--tokenizer", "bytes", "--lengths", "2k", "--depths", "1", "--samples", "1"]
            code, _, err = call("build", "niah", "-o", str(out), *options, "--set", f"haystack={haystack}")
            assert code == 0, err
            said += err
            made.append(out.read_bytes())
        return said, made

    _, good = build(0)
    files = sorted(file for file in cache.rglob("*") if file.is_file())
    assert {file.parent.name for file in files} == {"banks", "compiled", "pieces"}
    assert len(files) >= 3  # so that two calls have all kinds of damage
    for number, file in enumerate(files, first):
        _damage(file, DAMAGES[number % len(DAMAGES)])
    said, made = build(1)
    assert made == good
    assert all(f"the cache {file} cannot be used" in said for file in files)
    said, made = build(2)
    assert (made, "cannot be used" in said) == (good, False)
