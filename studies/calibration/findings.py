"""Where a study puts what it found: a small JSON file and one figure, beside the page that reads them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import altair as alt

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))  # for support.planted
BLUE, ORANGE, GREY, INK = "#2b6cb0", "#c05621", "#8a97a5", "#17212b"
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"


def save(name: str, found: dict[str, Any], chart: Any) -> None:
    """Writes results/NAME.json and figures/NAME.png, and prints the JSON."""
    found = {**found, "date": date.today().isoformat(), "cpu_seconds": round(time.process_time(), 1)}
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    for folder in ("results", "figures"):
        (HERE / folder).mkdir(exist_ok=True)
    (HERE / "results" / f"{name}.json").write_text(text)
    styled = chart.configure(font=FONT, background="white").configure_view(stroke=None)
    styled = styled.configure_axis(
        labelColor="#3b4855", titleColor="#3b4855", titleFontWeight="normal", gridColor="#e1e5ea"
    )
    styled = styled.configure_title(fontSize=15, anchor="start", color=INK, subtitleColor="#667381", offset=12)
    styled.save(str(HERE / "figures" / f"{name}.png"), ppi=144)
    print(text)


def chart_of(rows: Sequence[Mapping[str, Any]]) -> alt.Chart:
    """A chart of plain rows."""
    data: Any = {"values": [dict(row) for row in rows]}
    return alt.Chart(data)


def band(low: float, high: float, scale: alt.Scale) -> alt.Chart:
    """The stretch of the horizontal axis that a figure should fall into."""
    ends = {"x": alt.X(datum=low, scale=scale), "x2": alt.datum(high)}
    marked: alt.Chart = chart_of([{}]).mark_rect(color="#dbe7f3", opacity=0.6).encode(**ends)
    return marked


def two_colours(first: str, second: str) -> alt.Color:
    """Ours in blue, what it is compared with in grey, named above the figure."""
    scale = alt.Scale(domain=[first, second], range=[BLUE, GREY])
    return alt.Color("who:N", scale=scale, legend=alt.Legend(title=None, orient="top"))
