"""Do corrected means cover the human mean? 2,000 draws of labelled summaries per judge on SummHay's public labels.

    python studies/judges/coverage.py [--draws 2000] [--labels 20]

Writes results/coverage.json. The data (200 summaries, 1,419 labels by people, the verdicts of six judges) is not part
of the project; see tests/support/summhay.py for where it is looked for.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from leadline.features.judges.correction import corrected_mean  # noqa: E402
from leadline.stats.intervals import mean_interval  # noqa: E402
from support.summhay import ARCHIVE, read_summhay  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--labels", type=int, default=20, help="labelled summaries per draw")
    options = parser.parse_args()
    if not ARCHIVE.exists():
        sys.exit(f"the public labels are not at {ARCHIVE}")
    data = read_summhay()
    truth, names = float(np.mean(data.human)), sorted(set(data.summaries), key=int)
    rows = []
    for number, (judge, values) in enumerate(data.judges.items()):
        draw = np.random.default_rng([options.labels, number])
        naive = mean_interval(values, data.summaries)
        held, halves, ratios = 0, [], []
        for _ in range(options.draws):
            chosen = set(draw.choice(names, options.labels, replace=False))
            labels = [h if s in chosen else None for h, s in zip(data.human, data.summaries, strict=True)]
            found = corrected_mean(values, data.summaries, labels)
            assert found is not None
            held += found.interval.holds(truth)
            halves.append(found.interval.half_width)
            ratios.append(found.label_multiplier**0.5 * found.interval.half_width)
        rows.append(
            {
                "judge": judge,
                "naive_mean": round(naive.mean, 4),
                "naive_holds": naive.interval.holds(truth),
                "coverage": held / options.draws,
                "width_points": round(200 * float(np.mean(halves)), 1),
                "width_labels_alone_points": round(200 * float(np.mean(ratios)), 1),
                "worth": round((float(np.mean(ratios)) / float(np.mean(halves))) ** 2, 2),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    (HERE / "results").mkdir(exist_ok=True)
    summary = {
        "human_mean": round(truth, 4),
        "draws": options.draws,
        "labelled_summaries": options.labels,
        "judges": rows,
    }
    (HERE / "results" / f"coverage-{options.labels}.json").write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
