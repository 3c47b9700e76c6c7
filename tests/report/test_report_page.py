"""The page as text: complete, self-contained, and safe against untrusted text."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from leadline.core.types import Cell
from leadline.report.page import data_block, fingerprint, page
from leadline.results.run import load_run
from support.hostile_text import HOSTILE, hostile_records
from support.planted_runs import cliff, decay, failed_record, planted_record, planted_records, write_run


class Parts(HTMLParser):
    """Tags with their attributes, the text of scripts and styles, and what is shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.code: list[tuple[dict[str, str | None], str]] = []
        self.shown = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.code.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.lasttag in ("script", "style") and self.code:
            about, text = self.code[-1]
            self.code[-1] = (about, text + data)
        else:
            self.shown += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self.lasttag = ""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    records = list(planted_records(decay, tasks=["niah", "vt"], depths=[0.0, 0.5, 1.0]))
    records[0] = failed_record(records[0].cell)
    return page([load_run(write_run(tmp_path_factory.mktemp("page") / "run", records))])


def test_the_verdict_comes_first(text: str) -> None:
    shown = " ".join(Parts(text).shown.split())
    assert "Can use less than 16k of the 128k tokens it claims (95%); how far it reaches below 16k is" in shown
    assert shown.index("Can use less than ") < shown.index("Accuracy by length and depth")
    for words in (
        "claimed window",
        "effective length",
        "overall accuracy",
        "Limits",
        "1 sample failed; failed samples are in no mean",
        "Provenance",
        "Fingerprints",
    ):
        assert words in shown


def test_the_page_asks_nothing_of_any_network(text: str) -> None:
    for tag, about in Parts(text).tags:
        assert tag not in ("link", "iframe", "object", "embed", "base", "img"), tag
        for name in ("src", "href", "xlink:href", "action", "srcset", "data"):
            assert (about.get(name) or "#").startswith("#"), f"{tag} {name}"
    assert "url(http" not in text


def test_only_the_pages_own_script_and_style_may_run(text: str) -> None:
    parts = Parts(text)
    policy = next(a["content"] or "" for t, a in parts.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    run = [code for about, code in parts.code if not about.get("type")]
    assert len(run) == 2
    assert all(fingerprint(code) in policy for code in run)
    assert not any(name.startswith("on") or name == "style" for _, about in parts.tags for name in about)


def test_every_figure_has_a_text_alternative(text: str) -> None:
    figures = [about for tag, about in Parts(text).tags if tag == "svg"]
    assert len(figures) == 8
    assert all(len(about["aria-label"] or "") > 40 for about in figures)


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    text = page([load_run(write_run(tmp_path / "run", hostile_records(), samples=len(HOSTILE)))])
    parts = Parts(text)
    assert [about.get("type") for about, _ in parts.code].count(None) == 2, "one style, one script"
    assert "onerror" not in "".join(f"{about}" for _, about in parts.tags)
    assert len(text) < 600_000, "a megabyte of answer is shortened"
    assert "{{ 7*7 }}{% raw %}" in parts.shown, "shown as it is, not worked out"


def test_a_data_block_cannot_be_closed_from_within() -> None:
    value = ["</script><script>", "<!--", "]]>", "\u2028"]
    block = str(data_block(value))
    assert "<" not in block
    assert json.loads(block) == value


def test_a_run_without_a_record_has_a_page(tmp_path: Path) -> None:
    records = list(planted_records(cliff, lengths=[1024], depths=[0.0]))
    folder = write_run(tmp_path / "run", records)
    (folder / "records.jsonl").write_text("")
    shown = Parts(page([load_run(folder)])).shown
    assert "Has answered nothing yet." in shown
    assert "3 samples not asked yet." in shown


def test_a_run_of_failures_alone_has_a_page(tmp_path: Path) -> None:
    records = [failed_record(r.cell) for r in planted_records(cliff, lengths=[1024, 2048], depths=[0.0])]
    shown = Parts(page([load_run(write_run(tmp_path / "run", records))])).shown
    assert "Has no result: nothing was measured." in shown
    assert "6 samples failed" in shown


def test_tasks_without_depths_are_shown_in_one_grid_and_not_twice(tmp_path: Path) -> None:
    records = [planted_record(Cell(task, n, None, i), 1.0) for task in ("a", "b") for n in (1024, 2048) for i in (0, 1)]
    shown = page([load_run(write_run(tmp_path / "run", records, samples=2))])
    assert 'id="grid-0"' in shown
    assert 'id="heatmap-0"' not in shown
    assert 'href="#heatmap-0"' not in shown
