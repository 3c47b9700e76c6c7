"""The heatmap: what the picture says is what the table says."""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path

import altair as alt
import numpy as np
import numpy.typing as npt
import pytest
from altair.utils import schemapi
from PIL import Image

from leadline.core.format import format_length
from leadline.report.charts.heatmap import heatmap
from leadline.report.charts.render import PageFigure, render, write_figure
from leadline.report.charts.theme import ChartRow
from leadline.report.export import figures_of
from leadline.results.run import Run, load_run
from support.planted_runs import (
    LENGTHS,
    cliff,
    decay,
    failed_record,
    lost_in_the_middle,
    planted_records,
    write_run,
)

STORED = Path(__file__).parents[1] / "references" / "heatmap.png"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Lost in the middle, with two cells never asked and two samples failed."""
    return load_run(planted_run(tmp_path_factory.mktemp("runs") / "one"))


def planted_run(folder: Path) -> Path:
    records = planted_records(lost_in_the_middle)
    kept = [r for r in records if (r.cell.length, r.cell.depth) not in ((131072, 0.3), (131072, 0.4))]
    failed = [failed_record(r.cell) if (r.cell.length, r.cell.depth) == (65536, 0.5) else r for r in kept]
    return write_run(folder, failed)


def labels(svg: str, kind: str) -> list[str]:
    return re.findall(rf'aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="{kind}"', svg)


@pytest.mark.slow
def test_every_definition_is_valid_vega_lite(run: Run) -> None:
    """Figures are drawn without altair's own checks, which are on again afterwards."""
    for _, figure in figures_of(run):
        alt.Chart.from_dict(figure.spec() | {"datasets": {}}, validate=True)
    assert schemapi.DEBUG_MODE


def test_every_cell_is_drawn_once_and_says_its_value_interval_and_count(run: Run) -> None:
    svg = render(heatmap(run), "svg").decode()
    cells = labels(svg, "cell")
    assert len(cells) == len(set(cells)) == 88
    assert "niah, length 1k, depth 0%: 100%, 95% interval 44–100%, 3 of 3 answered" in cells
    assert "niah, length 128k, depth 30%: no data, 0 of 3 answered" in cells
    assert "niah, length 64k, depth 50%: no data, 0 of 3 answered, 3 failed" in cells


def test_a_cell_without_data_does_not_look_like_zero(run: Run) -> None:
    svg = render(heatmap(run), "svg").decode()
    empty = re.findall(r"<path [^>]*depth 30%: no data[^>]*>", svg)
    assert len(empty) == 1
    assert "fill=" not in empty[0]
    assert "stroke-dasharray" in empty[0]
    assert "no data" in re.findall(r">([^<>]+)</text>", svg)
    assert re.findall(r'<path [^>]*: 0%, [^>]*fill="rgb\(42, 3, 36\)"', svg), "a zero is the darkest colour"


def test_the_picture_names_model_reading_counts_and_date(run: Run) -> None:
    svg = render(heatmap(run), "svg").decode()
    text = " ".join(re.findall(r">([^<>]+)</(?:text|tspan)>", svg))
    for words in ("sim:planted", "niah · fresh reading · 255 samples, 3 failed, 6 not asked yet · 2025-11-15",
                  "3 samples planned per cell", "Dashed: no data", "not in the means", "Leadline"):  # fmt: skip
        assert words in text


def test_the_picture_has_a_text_alternative(run: Run) -> None:
    words = heatmap(run).alternative
    assert "sim:planted" in words
    assert "1k 100%" in words
    assert "Lowest cell: niah, length 128k" in words


def test_a_smoothed_map_keeps_what_was_seen_and_makes_no_cell_up(run: Run) -> None:
    raw = {(r["length"], r["row"]): r for r in heatmap(run).data["cells"]}
    smooth = {(r["length"], r["row"]): r for r in heatmap(run, smoothed=True).data["cells"]}
    assert smooth["128k", "30%"]["mean"] is None, "a cell without data stays without"
    cells = [key for key in raw if raw[key]["mean"] is not None]
    assert all(smooth[key]["note"].endswith("/3") for key in cells)

    def error(found: dict[tuple[str, str], ChartRow]) -> float:
        truth = {format_length(n): n for n in LENGTHS}
        return float(
            np.mean([(found[c]["mean"] - lost_in_the_middle(truth[c[0]], float(c[1][:-1]) / 100)) ** 2 for c in cells])
        )

    assert error(smooth) < 0.5 * error(raw), "it is nearer to the planted truth than three samples a cell are"


def test_several_tasks_are_small_multiples_on_one_scale(tmp_path: Path) -> None:
    records = [
        record
        for surface, task in ((cliff, "a"), (decay, "b"), (lost_in_the_middle, "c"))
        for record in planted_records(surface, tasks=[task], depths=[0.0, 0.5, 1.0], lengths=[1024, 8192, 65536])
    ]
    records += planted_records(cliff, tasks=["flat"], depths=[None], lengths=[1024, 8192, 65536])
    svg = render(heatmap(load_run(write_run(tmp_path / "run", records))), "svg").decode()
    cells = labels(svg, "cell")
    assert len(cells) == len(set(cells)) == 3 * 9 + 3
    assert svg.count("<linearGradient") == 1
    assert "flat, length 1k: 100%" in " ".join(cells)


def test_a_hostile_name_stays_text(tmp_path: Path) -> None:
    name = "</svg><script>alert(1)</script>\x1b[31m"
    records = list(planted_records(cliff, tasks=[name], lengths=[1024], depths=[0.0], model=f"sim:{name}"))
    svg = PageFigure(heatmap(load_run(write_run(tmp_path / "run", records))), "x").__html__()
    assert "<script" not in svg
    assert "\x1b" not in svg
    assert svg.count("</svg>") == 1


def test_the_page_draws_in_the_colours_of_the_page(run: Run) -> None:
    svg = PageFigure(heatmap(run, titled=False), "first").__html__()
    assert 'fill="var(--text)"' in svg
    assert "#3b4855" not in svg
    assert 'id="first-' in svg
    assert "url(#first-" in svg
    assert svg.startswith('<svg role="group" aria-label="Heatmap of accuracy')


def test_the_three_formats_are_written_beside_the_records(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", list(planted_records(cliff, lengths=[1024], depths=[0.0, 1.0])))
    assert write_figure(heatmap(load_run(folder)), folder / "heatmap")[0] == folder / "heatmap.png"
    assert (folder / "heatmap.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "heatmap.pdf").read_bytes().startswith(b"%PDF")
    assert (folder / "heatmap.svg").read_text().startswith("<svg")


def test_the_picture_looks_as_it_did(run: Run) -> None:
    """Against a stored picture, with room for small differences between machines. `python FILE` renews it."""
    seen, wanted = _pixels(render(heatmap(run), "png")), _pixels(STORED.read_bytes())
    assert seen.shape == wanted.shape
    assert np.mean(np.abs(seen - wanted)) < 2.0


def _pixels(png: bytes) -> npt.NDArray[np.float64]:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=np.float64)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        drawn = render(heatmap(load_run(planted_run(Path(made) / "one"))), "png")
        Image.open(io.BytesIO(drawn)).convert("RGB").quantize(256).save(STORED, optimize=True)


def test_cells_without_data_or_with_fewer_answers_say_so(tmp_path: Path) -> None:
    records = list(planted_records(cliff, lengths=[1024, 65536], depths=[0.0, 1.0]))
    gap = load_run(write_run(tmp_path / "gap", [r for r in records if r.cell.depth or r.cell.length == 1024][:-1]))
    drawn = render(heatmap(gap), "svg").decode()
    assert "no data" in drawn
    assert "2 of 3" in drawn


def test_a_cell_of_the_page_selects_its_exact_depth(tmp_path: Path) -> None:
    records = list(planted_records(cliff, lengths=[1024, 65536], depths=[0.125, 1 / 3]))
    svg = PageFigure(heatmap(load_run(write_run(tmp_path / "run", records))), "map").__html__()
    assert {float(depth) for depth in re.findall(r'data-select="0/0/1024/([\d.]+)/', svg)} == {0.125, 1 / 3}
