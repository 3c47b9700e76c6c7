"""Seconds by tokens of a document that are read, from the results of tables.py: the figure for the README.

    PYTHONPATH=src python benchmarks/gpu/figure.py DIR       reads DIR/results.json, writes DIR/reading.svg

Each line is one document of a long step: reading alone, without its probes. A dashed line is what the plain loop needs
for one probe of that length, where the shape was timed in the same results.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import altair
import vl_convert


def points(results: dict[str, Any]) -> list[dict[str, Any]]:
    long = [found for found in results.values() if "read" in found and "equal_to_resident" not in found]
    drawn = [
        {"tokens": tokens, "seconds": seconds, "model": found["shape"], "what": "whole document, read once"}
        for found in long
        for tokens, seconds in found["read"]
    ]
    shapes = {found["shape"] for found in long}
    for found in results.values():
        if "plain" in found and found["shape"] in shapes:
            pairs = zip(found["plain"]["lengths"], found["plain"]["probe_seconds"], strict=True)
            drawn += [
                {"tokens": tokens, "seconds": seconds, "model": found["shape"], "what": "one probe, plain loop"}
                for tokens, seconds in pairs
            ]
    return drawn


def draw(folder: Path) -> Path:
    results = json.loads((folder / "results.json").read_text())
    chart = {
        "$schema": altair.SCHEMA_URL,
        "title": "One document, read once on one GPU",
        "width": 560,
        "height": 300,
        "data": {"values": points(results)},
        "mark": {"type": "line", "point": {"size": 18}},
        "encoding": {
            "x": {"field": "tokens", "type": "quantitative", "title": "tokens read"},
            "y": {"field": "seconds", "type": "quantitative", "title": "seconds"},
            "color": {"field": "model", "type": "nominal", "title": None},
            "strokeDash": {"field": "what", "type": "nominal", "title": None},
        },
    }
    file = folder / "reading.svg"
    file.write_text(vl_convert.vegalite_to_svg(chart))
    return file


if __name__ == "__main__":
    print(draw(Path(sys.argv[1])))
