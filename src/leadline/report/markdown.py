"""A report for a pull request: a table and links to pictures, in Markdown that cannot be broken by a name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from leadline.report.comparison import against_first, boards, titles
from leadline.report.load import Run, interval_words
from leadline.report.terminal import small_print
from leadline.report.verdict import verdict
from leadline.report.words import length_words, safe


def markdown(runs: Sequence[Run], pictures: Sequence[Path]) -> str:
    """Verdicts, a table a reading mode, differences against the first run, pictures, and the small print."""
    names, verdicts = titles(runs), [verdict(run) for run in runs]
    lines = ["### Leadline", ""]
    lines += [f"- {safe(found.headline)}" for found in verdicts]
    for board in boards(runs, verdicts, names):
        lengths = " | ".join(length_words(n) for n in board.lengths)
        lines += ["", f"| {board.reading} reading | effective length | {lengths} | average |"]
        lines.append("|---|---|" + "---:|" * (len(board.lengths) + 1))
        for row in board.rows:
            cells = [f"{c.mean} ({c.spread})" if c.spread else c.mean for c in (*row.cells, row.average)]
            lines.append(f"| {safe(row.name)} | {row.effective} | {' | '.join(cells)} |")
    lines += ["", f"Accuracy in percent with {interval_words(*runs)}."]
    for item in against_first(runs, names):
        lines += ["", f"**{safe(item.name)}.** {safe(item.sentence)}"]
        lines += [f"> {safe(line)}" for line in item.warnings]
    for path, name in zip(pictures, names, strict=False):
        lines += ["", f"![Accuracy by length and depth, {safe(name)}](<{path.as_posix()}>)"]
    notes = list(dict.fromkeys(line for run in runs for line in small_print(run)))
    lines += ["", "<details><summary>How to read this</summary>", ""]
    lines += [f"- {safe(line)}" for line in notes]
    return "\n".join([*lines, "", "</details>", ""])
