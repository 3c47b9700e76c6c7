"""Cards, badges and boards say one of four verdicts, and only what was measured."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from leadline.features.cards.verdict import window_use
from leadline.results.run import load_run
from support.commands import Say

CASES = {
    "uses all it claims": ("sim:cliff?window=4k", "1k,2k,4k", 40),
    "uses all it claims, longer prompts fail": ("sim:cliff?window=2k", "1k,2k,4k", 40),
    "uses part": ("sim:cliff?window=1500", "1k,2k,4k", 40),
    "not decided": ("sim:perfect?window=8k", "1k,2k", 2),
}


@pytest.fixture
def run(say: Say, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    model, lengths, samples = CASES[request.param]
    folder = tmp_path / "run"
    code = say("run", "niah", "--model", model, "--lengths", lengths, "--depths", "2",
               "--samples", str(samples), "--out", str(folder), "--no-figure").code  # fmt: skip
    assert code == 0
    return folder


@pytest.mark.quick_cases(use=("uses part", "not decided"))
@pytest.mark.parametrize(("run", "use"), [(case, case) for case in CASES], indirect=["run"])
def test_a_run_has_one_of_the_four_verdicts(run: Path, use: str, say: Say, tmp_path: Path) -> None:
    found, use = window_use(load_run(run)), use.partition(",")[0]
    assert found.use == use
    said = say("badge", str(run), "-o", str(tmp_path / "badge.svg"))
    assert f"{use}: " in said.out
    for name in ("badge", "card"):
        out = tmp_path / f"{name}.svg"
        assert say(name, str(run), "-o", str(out)).code == 0
        text = out.read_text()
        ElementTree.fromstring(text)
        assert found.value in text
    assert use in (tmp_path / "card.svg").read_text()
    assert text.count("<rect") > 4, "the map has cells"


@pytest.mark.slow
@pytest.mark.parametrize("run", ["uses part"], indirect=True)
def test_a_board_ranks_runs_and_marks_published_rows(run: Path, say: Say, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("model,4k,8k\nElsewhere-7B,95.0,90.0\n")
    found = say("board", str(run.parent), "-o", str(tmp_path / "site"), "--published", str(table))
    assert found.code == 0, found.err
    page = (tmp_path / "site" / "index.html").read_text()
    assert "Elsewhere-7B" in page
    assert ">published<" in page
    assert (tmp_path / "site" / "card-0.svg").exists()
    assert "sim:cliff" in page


@pytest.mark.parametrize("run", ["not decided"], indirect=True)
def test_a_picture_of_another_kind_is_refused(run: Path, say: Say, tmp_path: Path) -> None:
    found = say("card", str(run), "-o", str(tmp_path / "card.gif"))
    assert found.code == 64
    assert ".svg or .png" in found.err
    assert say("card", str(run), "-o", str(tmp_path / "card.png")).code == 0
    assert (tmp_path / "card.png").read_bytes().startswith(b"\x89PNG")
    assert say("board", str(tmp_path / "nothing")).code == 66
