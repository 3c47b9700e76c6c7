"""The verdict: planted truths come back as sentences."""

from __future__ import annotations

import gc
import io
import json
import weakref
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from leadline.core.format import format_length, format_percent_range
from leadline.core.types import Cell
from leadline.report.export import markdown
from leadline.report.terminal import footnotes, show_run
from leadline.results.run import load_run
from leadline.results.sentences import against_the_curve
from leadline.results.summary import summary
from leadline.results.verdict import Verdict, format_design_effect, verdict
from support.planted_runs import (
    Surface,
    cliff,
    decay,
    lost_in_the_middle,
    perfect,
    planted_record,
    planted_records,
    write_run,
)


def found(folder: Path, surface: Surface, **settings: object) -> Verdict:
    records = planted_records(surface, samples=5, **settings)  # type: ignore[arg-type]
    return verdict(load_run(write_run(folder / "run", list(records), samples=5)))


@pytest.mark.parametrize(
    ("surface", "claim", "shape"),
    [
        (cliff, "Can use 32k of the 128k tokens it claims", "Cliff:"),
        (
            lost_in_the_middle,
            "Can use at least 1k and less than 16k of the 128k tokens it claims",
            "Lost in the middle:",
        ),
        (decay, "Can use at least 4k and less than 32k of the 128k tokens it claims", "Smooth decay:"),
        (perfect, "Can use at least 128k of the 128k tokens it claims", "Healthy"),
    ],
    ids=["cliff", "middle", "decay", "perfect"],
)
def test_a_planted_profile_is_named(tmp_path: Path, surface: Surface, claim: str, shape: str) -> None:
    said = found(tmp_path, surface)
    assert said.claim.startswith(claim)
    assert said.findings[0].startswith(shape)
    assert said.headline.startswith("sim:planted can use ")


def test_the_effective_length_of_a_cliff_lies_where_it_was_planted(tmp_path: Path) -> None:
    said = found(tmp_path, cliff)
    assert said.effective is not None
    assert said.effective.low <= 65536
    assert said.effective.high >= 32768
    assert said.effective.length == 32768
    assert said.claim.endswith("; it fails at 64k, between the two about 45k by interpolation.")


def test_several_tasks_are_named_together(tmp_path: Path) -> None:
    records = [
        record
        for task, surface in (("a", cliff), ("b", cliff), ("c", decay))
        for record in planted_records(surface, tasks=[task], samples=5)
    ]
    said = verdict(load_run(write_run(tmp_path / "run", records, samples=5)))
    assert "Cliff: a, b." in said.findings
    assert "Smooth decay: c." in said.findings
    assert set(said.by_task) == {"a", "b", "c"}


def test_one_length_gives_a_share_and_no_effective_length(tmp_path: Path) -> None:
    said = found(tmp_path, perfect, lengths=[4096])
    assert said.effective is None
    assert said.claim == "Is right in 100% of 55 samples."


def test_a_right_answer_a_length_is_no_claim_that_a_length_can_be_used(tmp_path: Path) -> None:
    records = [planted_record(Cell("niah", n, 0.5, 0), 1.0) for n in (1024, 2048, 4096)]
    said = verdict(load_run(write_run(tmp_path / "run", records, samples=1)))
    assert said.claim.startswith(
        "Not decided: anything from below 1k to above 4k; it claims 128k. 22 more samples a cell would tell"
    )
    assert said.effective is not None
    assert str(said.effective) == "not decided (95%: anything from below 1k to above 4k)"


def test_one_document_is_no_claim_that_every_length_falls_short(tmp_path: Path) -> None:
    """Six answers from one document, all but one wrong: the rows say 0 to 100, and so does the headline."""
    cells = [Cell("niah", n, d, 0) for n in (512, 1024) for d in (0.0, 0.5, 1.0)]
    records = [planted_record(c, float(c.length == 512 and c.depth == 0.0), reading="nested") for c in cells]
    run = load_run(write_run(tmp_path / "run", records, samples=1))
    said = verdict(run)
    assert said.claim.startswith("Not decided: anything from below 512 to above 1k")
    assert {(tally.interval.low, tally.interval.high) for tally in run.table.by_length.values() if tally.interval} == {
        (0.0, 1.0)
    }
    effective = summary(run)["effective_length"]
    assert (effective["decided"], effective["low"], effective["high"]) == (False, None, None)


def test_the_time_of_more_samples_is_that_of_the_run_so_far(tmp_path: Path) -> None:
    """23 right answers would decide a length; 15 took 2 s each, one after the other, so 8 more a length take 32 s."""
    cells = [Cell("niah", n, 0.5, i) for n in (2048, 2049) for i in range(15)]
    records = [
        msgspec.structs.replace(planted_record(cell, 1.0), started=100.0 + 2 * at, seconds=2.0)
        for at, cell in enumerate(cells)
    ]
    said = verdict(load_run(write_run(tmp_path / "run", records, samples=15)))
    assert said.claim.endswith(" 8 more samples a cell would tell (about 32 s).")


def test_what_lies_beyond_the_measured_lengths_is_said(tmp_path: Path) -> None:
    said = found(tmp_path, perfect, lengths=[4096, 8192])
    assert "Nothing longer than 8k, of 128k claimed." in said.not_measured


def test_the_name_of_a_task_stays_as_it_is_at_the_start_of_a_limit(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", list(planted_records(perfect, samples=1)), samples=1)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["model"]["notes"] = ["niah: at 4k, 30 % of the text is in another document", "simulated: planted"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    limits = verdict(load_run(folder)).not_measured
    assert "niah: at 4k, 30 % of the text is in another document." in limits
    assert "Simulated: planted." in limits


def test_a_model_that_reads_further_than_it_claims_is_told_so(tmp_path: Path) -> None:
    records = list(planted_records(perfect, samples=5))
    said = verdict(load_run(write_run(tmp_path / "run", records, samples=5, window=65536)))
    assert said.claim.startswith(
        "Can use at least 128k tokens, more than the 64k it claims: no measured length is below"
    )
    records = list(planted_records(cliff, samples=5))
    said = verdict(load_run(write_run(tmp_path / "other", records, samples=5, window=16384)))
    assert said.claim.startswith(
        "Can use 32k tokens, more than the 16k it claims (95%: at least 32k, below 64k); it fails at 64k"
    )


@pytest.mark.parametrize("window", [4096, 4097, 5000, 8191])
@pytest.mark.parametrize("claimed", [4096, 5000])
def test_interpolation_never_makes_a_model_read_more_than_it_claims(tmp_path: Path, window: int, claimed: int) -> None:
    """Powers of two cannot tell a window of 4,097 from one of 8,191: the measured length comes first."""
    cells = [Cell("niah", n, d, i) for n in (1024, 2048, 4096, 8192) for d in (0.0, 0.5, 1.0) for i in range(20)]
    records = [planted_record(cell, float(cell.length <= window)) for cell in cells]
    said = verdict(load_run(write_run(tmp_path / "run", records, samples=20, window=claimed)))
    assert said.claim == (
        f"Can use 4k of the {format_length(claimed)} tokens it claims (95%: at least 4k, below 8k); it fails at 8k, "
        "between the two about 5.7k by interpolation."
    )


def test_lengths_on_the_other_side_of_the_line_than_the_curve_are_named(tmp_path: Path) -> None:
    right = {4096: 18, 8192: 16, 16384: 19}  # of 20: 16 is below the threshold, as chance has it
    cells = [Cell("niah", n, 0.5, i) for n in right for i in range(20)]
    records = [planted_record(cell, float(cell.sample < right[cell.length])) for cell in cells]
    said = verdict(load_run(write_run(tmp_path / "run", records, samples=20)))
    assert said.claim.startswith("Not decided: anything from below 4k to above 16k; it claims 128k. ")
    assert said.effective is not None
    assert against_the_curve(said.effective) == (
        "; its score is below the threshold at 8k, within what chance does to a falling curve"
    )


def test_independent_samples_are_counted_as_such(tmp_path: Path) -> None:
    """Ten right answers of ten are 72 to 100 %, and a perfect model with 50 of 50 at every length has no open end."""
    run = load_run(write_run(tmp_path / "run", list(planted_records(perfect, depths=[0.0, 0.5], samples=5)), samples=5))
    assert [format_percent_range(t.interval) for t in run.table.by_length.values()] == ["72–100"] * len(
        run.table.by_length
    )
    assert format_design_effect(run) == "Every sample has a haystack of its own: design effect 1."
    many = load_run(
        write_run(tmp_path / "many", list(planted_records(perfect, depths=[0.0, 0.5], samples=25)), samples=25)
    )
    assert verdict(many).claim.startswith("Can use at least 128k of the 128k tokens it claims: no measured length")


def test_samples_that_share_haystacks_say_how_many_and_at_what_cost(tmp_path: Path) -> None:
    records = list(planted_records(lambda n, d: 0.6, samples=3, reading="shared"))
    run = load_run(write_run(tmp_path / "run", records, samples=3))
    said = format_design_effect(run)
    assert said.startswith("264 samples from 24 haystacks: intraclass correlation 0.")
    assert said.endswith(" Only 3 haystacks at every length: too few to rely on, plan on 5 or more.")
    assert said in footnotes(run)
    assert summary(run)["design_effect"]["documents"] == 24


def test_a_verdict_is_found_once_for_a_run_and_forgotten_with_it(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", list(planted_records(cliff, lengths=[1024, 65536], depths=[0.5]))))
    first = verdict(run)
    assert verdict(run) is first
    assert verdict(load_run(tmp_path / "run")) is not first
    kept = weakref.ref(run)
    del run
    gc.collect()
    assert kept() is None


def test_a_stopped_run_says_below_its_headline_what_was_not_asked(tmp_path: Path) -> None:
    records = list(planted_records(perfect, lengths=[1024, 2048], depths=[0.0, 1.0], samples=5))
    folder = write_run(tmp_path / "run", records, samples=5)
    shown, whole = (folder / "records.jsonl"), (folder / "records.jsonl").read_text().splitlines(keepends=True)

    def report() -> tuple[list[str], str]:
        run, out = load_run(folder), io.StringIO()
        show_run(run, Console(file=out, width=400))
        return out.getvalue().splitlines(), markdown([run], ())

    assert "not asked yet" not in "\n".join(report()[0]) + report()[1]
    shown.write_text("".join(line for at, line in enumerate(whole) if at % 2))
    lines, text = report()
    assert lines[1].startswith("Not decided: anything from below 1k to above 2k")
    assert lines[2] == "10 samples not asked yet."
    assert next(line for line in text.splitlines() if line.startswith("- ")).endswith(" 10 samples not asked yet.")
    assert "10 samples not asked yet." in verdict(load_run(folder)).not_measured


def test_healthy_is_not_said_of_a_task_below_the_threshold(tmp_path: Path) -> None:
    """93 at 1k and 80 at 4k, on 15 samples each: chance explains it, but the score at 4k fails."""
    right = {1024: 14, 4096: 12}
    cells = [Cell(task, length, 0.5, sample) for task in ("low", "high") for length in right for sample in range(15)]
    records = [planted_record(c, float(c.task == "high" or c.sample < right[c.length])) for c in cells]
    both = verdict(load_run(write_run(tmp_path / "both", records, samples=15))).shapes
    assert set(both) == {"No decline shown: low.", "Healthy: high."}
    (alone,) = verdict(load_run(write_run(tmp_path / "low", records[:30], samples=15))).shapes
    assert alone == "No decline shown in 30 samples, mean 87 (95%: 70 or more)."


def test_the_shape_has_the_mean_of_the_findings(tmp_path: Path) -> None:
    """More samples at one length than at the others: lengths weigh alike in both sentences."""
    cells = [Cell("niah", 1024, 0.5, s) for s in range(40)] + [Cell("niah", 4096, 0.5, s) for s in range(10)]
    records = [planted_record(c, float(c.sample % 5 > (c.length == 1024))) for c in cells]
    found = verdict(load_run(write_run(tmp_path / "run", records, samples=10)))
    assert any("it is right in 70% " in line for line in found.findings)
    assert "about 70 " in found.shapes[0]
