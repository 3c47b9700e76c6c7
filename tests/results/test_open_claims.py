"""What a run says where its answers leave some length on either side of the threshold: what is sure all the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from leadline.core.types import Cell, Reading
from leadline.features.cards.verdict import window_use
from leadline.report.charts.curves import effective_length_bar
from leadline.results.run import Run, load_run
from leadline.results.summary import effective_values
from leadline.results.verdict import verdict
from support.planted_runs import planted_record, write_run

LENGTHS = (512, 1024, 2048, 4096, 8192)


def counted_run(
    folder: Path,
    right: Sequence[int],
    *,
    lengths: Sequence[int] = LENGTHS,
    depths: int = 5,
    samples: int = 10,
    reading: Reading = "fresh",
    window: int | None = 8192,
) -> Run:
    """A run with `right` right answers at each length; the wrong ones are spread evenly."""
    cells = [(s, i / max(depths - 1, 1)) for s in range(samples) for i in range(depths)]
    records = [
        planted_record(
            Cell("niah", length, depth, sample),
            float(number * count // len(cells) < (number + 1) * count // len(cells)),
            reading=reading,
        )
        for length, count in zip(lengths, right, strict=True)
        for number, (sample, depth) in enumerate(cells)
    ]
    return load_run(write_run(folder / "run", records, samples=samples, window=window))


def test_that_a_length_is_failed_is_said_where_a_shorter_one_is_open(tmp_path: Path) -> None:
    """Scores of SmolLM2-135M on one needle, documents shared by eleven depths: 94 % at 512, 65 % at 1k, 12 % at 8k."""
    run = counted_run(tmp_path, (103, 72, 66, 43, 13), depths=11, reading="shared")
    said = verdict(run)
    assert said.claim.startswith(
        "Can use less than 1k of the 8k tokens it claims (95%); whether it reaches 512 is not decided: "
    )
    assert " more samples a cell at 512 would tell" in said.claim
    assert said.headline.startswith("sim:planted can use less than 1k of the 8k")
    assert said.effective is not None
    assert str(said.effective) == "below 1k (95%; 512 not decided)"
    values = effective_values(said.effective)
    assert values is not None
    shown = {key: values[key] for key in ("decided", "surely_reached", "surely_failed", "open_lengths")}
    assert shown == {"decided": False, "surely_reached": None, "surely_failed": 1024, "open_lengths": [512]}
    use = window_use(run)
    assert (use.use, use.value, use.interval) == ("uses part", "below 1k of 8k", "95%: 512 not decided")
    [row] = effective_length_bar(run, said.effective).data["bar"]
    assert row["value"] == "below 1k"
    assert row["reached"] == row["start"], "the estimate is 512, and not decided"


@pytest.mark.parametrize(
    ("right", "settings", "claim", "use", "value"),
    [
        ((50, 47, 45, 42, 38), {}, "Can use at least 512 of the 8k tokens it claims (95%); how far it reaches "
         "beyond 512 is not decided: ", "not decided", "at least 512 of 8k"),
        ((50, 50, 43, 30, 15), {}, "Can use at least 1k and less than 4k of the 8k tokens it claims (95%); whether it "
         "reaches 2k is not decided: ", "uses part", "at least 1k of 8k"),
        ((270, 258, 248, 231, 209), {"depths": 11, "samples": 25}, "Can use at least 2k and less than 8k of the 8k "
         "tokens it claims (95%); whether it reaches 4k is not decided: ", "uses part", "at least 2k of 8k"),
        ((15, 15, 15, 0, 0), {"samples": 3}, "Can use less than 4k of the 8k tokens it claims (95%); how far it "
         "reaches below 4k is not decided: ", "uses part", "below 4k of 8k"),
        ((50, 50, 50, 44, 15), {"window": 2048}, "Can use at least 2k and less than 8k tokens (95%; it claims 2k); "
         "whether it reaches 4k is not decided: ", "uses all it claims", "2k of 2k"),
        ((14, 14, 14, 13, 4), {"window": 2048, "samples": 3}, "Can use less than 8k tokens (95%; it claims 2k); how "
         "far it reaches below 8k is not decided: ", "not decided", "below 8k"),
        ((50, 50, 50, 50, 44), {"window": 2048}, "Can use at least 4k tokens, more than the 2k it claims (95%); "
         "whether it reaches 8k is not decided: ", "uses all it claims", "2k of 2k"),
        ((1, 1, 1, 1, 0), {"depths": 1, "samples": 1}, "Not decided: anything from below 512 to above 8k; it claims "
         "8k. ", "not decided", "not decided"),
        ((15, 15, 8, 15, 15), {"samples": 3}, "Fails the threshold at 2k, not decided from 512 to 1k and from 4k to "
         "8k: its scores do not fall steadily with length, so no one length tells. ", "not decided", "not decided"),
        ((50, 50, 25, 50, 50), {}, "Clears the threshold from 512 to 1k and from 4k to 8k, not at 2k: its scores do "
         "not fall steadily with length, so no one length tells.", "not decided", "not decided"),
        ((50, 50, 50, 50), {"lengths": LENGTHS[:4]}, "Can use at least 4k of the 8k tokens it claims; no longer "
         "prompt was asked.", "not decided", "at least 4k of 8k"),
    ],
    ids=["slow decay", "open in the middle", "many samples", "cliff of few samples", "open beyond the window",
         "open up to beyond the window", "more than it claims", "one sample", "hole of few samples", "hole",
         "half the window"],
)  # fmt: skip
def test_what_is_sure_is_said_and_what_is_not(
    tmp_path: Path, right: Sequence[int], settings: dict[str, int], claim: str, use: str, value: str
) -> None:
    run = counted_run(tmp_path, right, **settings)  # type: ignore[arg-type]
    said = verdict(run)
    assert said.claim.startswith(claim)
    assert (window_use(run).use, window_use(run).value) == (use, value)
    assert said.effective is not None
    for length in said.effective.open_lengths:
        interval = run.table.by_length[length].interval
        assert interval is not None
        assert said.effective.surely_reached is None or said.effective.surely_reached < length
        assert said.effective.surely_failed is None or length < said.effective.surely_failed
    for end in (said.effective.surely_reached, said.effective.surely_failed):
        interval = run.table.by_length[end].interval if end else None
        assert interval is None or not interval.low < said.effective.threshold < interval.high


def test_a_length_that_no_number_of_samples_decides_is_named(tmp_path: Path) -> None:
    said = verdict(counted_run(tmp_path, (275, 275, 236, 55, 0), depths=11, samples=25))
    assert said.claim.endswith(
        "whether it reaches 2k is not decided: its score at 2k is too close to the threshold (85.6%, RULER's "
        "threshold) for more samples to tell."
    )
