"""A scorer and a haystack of your own, used by a small task. Nothing has to be installed: names are FILE.py:NAME."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import leadline


def weather_reports() -> str:
    """A haystack: a function that returns the text, or a leadline.TextSource."""
    winds, skies = ("north", "south", "east", "west"), ("clear", "cloudy", "hazy", "grey")
    lines = [
        f"On day {day} the wind came from the {winds[day % 4]}, and the sky was {skies[day % 3]}."
        for day in range(3000)
    ]
    return " ".join(lines)


class FirstWord:
    """A scorer: a name and a pure function from a question and its answer to a score from 0 to 1."""

    name = "first_word"

    def score(self, question: leadline.Question, completion: leadline.Completion) -> leadline.Score:
        words = completion.text.split()
        first = words[0].strip(".,!") if words else ""
        return leadline.Score(float(first in question.targets), answer=first)


class LightShip(leadline.Task):
    """One planted number, scored by its first word and by the built-in match."""

    def draft(self, cells: Sequence[leadline.Cell], *, seed: int) -> leadline.Draft:
        (cell,) = cells
        name = f"{cell.task}/{cell.length}/{cell.depth}/{cell.sample}"
        number = str(leadline.rng(seed, name).randrange(1000, 10000))
        fact = leadline.Fact("ship", f"The light ship has the number {number}.", cell.depth or 0.0, cell.length)
        question = leadline.DraftQuestion(
            cell=cell, text="\n\nQuestion: What is the number of the light ship?", answer_prefix="The number is",
            targets=(number,), allowance=16, scorers=(f"{__file__}:FirstWord", "match.all"), facts=("ship",),
        )  # fmt: skip
        filler = leadline.open_source(f"{__file__}:weather_reports").filler(seed=cell.sample)
        return leadline.Draft(name, name, "Read these weather reports.\n\n", filler, (fact,), (question,))

    def sources(self) -> Sequence[leadline.Source]:
        return (leadline.open_source(f"{__file__}:weather_reports"),)


if __name__ == "__main__":
    spec = leadline.Spec(model="sim:perfect", tasks=f"{__file__}:LightShip", lengths="1k,2k", depths=3, samples=2)
    run = leadline.measure(spec, sys.argv[1] if len(sys.argv) > 1 else None)
    print(run.verdict.headline)
    print(run.to_pandas()[["length", "depth", "score", "answer", "targets"]].head())
