"""How long a map up to a length takes, read once and with the plain loop: the figure for the README.

    PYTHONPATH=src python benchmarks/gpu/figure.py DIR       reads DIR/results.json of tables.py, writes DIR/reading.png

A solid line is one document of a long step: seconds until that much of it is read, and at its end all probes answered.
A dashed line is the plain loop of the same shape, where it was timed: one `generate` per probe, summed over all lengths
of the map up to that one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import altair
import vl_convert

from leadline.core.format import format_duration

COLOURS = ("#1b6ca8", "#c2571a")


def lines(results: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The points of all lines, and one label at the end of each line."""
    points: list[dict[str, Any]] = []
    labels: list[dict[str, Any]] = []

    def add(shape: str, way: str, pairs: list[tuple[int, float]], text: str) -> None:
        found = [{"tokens": tokens, "seconds": seconds, "shape": shape, "way": way} for tokens, seconds in pairs]
        points.extend(found)
        labels.append({**found[-1], "text": text})

    for long in results.values():
        if "read" not in long or "equal_to_resident" in long:
            continue
        shape, first, depths = long["shape"], long["lengths"][0], long["depths"]
        read = [(tokens, seconds) for tokens, seconds in long["read"] if tokens]
        end, whole = (long["tokens"], long["seconds"]), format_duration(long["seconds"])
        add(shape, "read once", [*read, end], f"{shape}: {whole}")
        for short in results.values():
            if short.get("shape") != shape or "plain" not in short:
                continue
            pairs, seconds = [], 0.0
            for length, once in zip(short["plain"]["lengths"], short["plain"]["probe_seconds"], strict=True):
                if length >= first:
                    seconds += depths * once
                    pairs.append((length, seconds))
            if pairs:
                add(shape, "plain loop", pairs, f"plain loop: {format_duration(seconds)}")
    return points, labels


def draw(folder: Path) -> Path:
    results = json.loads((folder / "results.json").read_text())
    long = max((found for found in results.values() if "read" in found), key=lambda found: found["tokens"])
    points, labels = lines(results)
    shapes = list(dict.fromkeys(point["shape"] for point in points))
    colour = {"field": "shape", "type": "nominal", "legend": None, "scale": {"domain": shapes, "range": COLOURS}}
    axis = {"type": "log", "nice": False}
    place = {
        "x": {"field": "tokens", "type": "quantitative", "title": "context length, tokens (log scale)",
              "scale": {**axis, "domain": [4096, 1 << 20]},
              "axis": {"values": [1 << power for power in range(12, 21)], "grid": False,
                       "labelExpr": "datum.value >= 1048576 ? '1M' : datum.value / 1024 + 'k'"}},
        "y": {"field": "seconds", "type": "quantitative", "title": "seconds (log scale)",
              "scale": {**axis, "domain": [1, 1000]}, "axis": {"values": [1, 10, 100, 1000], "gridColor": "#e4e4e4"}},
        "color": colour,
    }  # fmt: skip
    dash = {"field": "way", "type": "nominal", "legend": None,
            "scale": {"domain": ["read once", "plain loop"], "range": [[1, 0], [5, 4]]}}  # fmt: skip

    def text(way: str, **where: Any) -> dict[str, Any]:
        return {"data": {"values": [label for label in labels if label["way"] == way]},
                "mark": {"type": "text", "fontSize": 12, **where},
                "encoding": {**place, "text": {"field": "text", "type": "nominal"}}}  # fmt: skip

    chart = {
        "$schema": altair.SCHEMA_URL,
        "background": "white",
        "padding": 12,
        "title": {"text": f"A needle map of {len(long['lengths'])} lengths x {long['depths']} depths to "
                          f"{long['tokens']:,} tokens on one GPU",
                  "subtitle": "solid: one document, read once; dashed: one generate per probe, as far as it was timed",
                  "anchor": "start", "offset": 12},
        "width": 620,
        "height": 320,
        "layer": [
            {"data": {"values": points}, "mark": {"type": "line", "point": {"size": 22}},
             "encoding": {**place, "strokeDash": dash}},
            text("read once", align="right", dx=-12, dy=-10),
            text("plain loop", align="left", dx=10, dy=2),
        ],
        "config": {"font": "sans-serif", "view": {"stroke": None}},
    }  # fmt: skip
    file = folder / "reading.png"
    file.write_bytes(vl_convert.vegalite_to_png(chart, scale=2))
    return file


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "results.json").is_file():
        sys.exit("usage: figure.py DIR, a folder with the results.json that tables.py wrote")
    print(draw(Path(sys.argv[1])))
