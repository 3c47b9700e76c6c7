"""A task of your own: plant a sentence with a colour at a depth, and ask for the colour.

From the command line:

    leadline run ./examples/custom_task.py:Colours --model sim:perfect --lengths 1k,2k --depths 3
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import leadline

COLOURS = ("amber", "azure", "crimson", "emerald", "indigo", "ivory", "scarlet", "violet")


class Colours(leadline.Task):
    """The fields of the class are its options: `--set haystack=noise`."""

    haystack: str = "prose"

    def draft(self, cells: Sequence[leadline.Cell], *, seed: int) -> leadline.Draft:
        (cell,) = cells  # fresh reading: one document for each cell
        name = f"{cell.task}/{cell.length}/{cell.depth}/{cell.sample}"
        colour = leadline.rng(seed, name).choice(COLOURS)
        sentence = f"The door of the harbour master is {colour}."
        fact = leadline.Fact("door", sentence, cell.depth or 0.0, cell.length)
        question = leadline.DraftQuestion(
            cell=cell,
            text="\n\nQuestion: Which colour is the door of the harbour master?",
            answer_prefix="The door is",
            targets=(colour,),
            allowance=16,
            scorers=("match.all",),
            facts=("door",),
        )
        filler = leadline.open_source(self.haystack).filler(seed=leadline.rng(seed, name, "text").getrandbits(32))
        head = "Read the text and answer the question after it.\n\n"
        return leadline.Draft(name, name, head, filler, (fact,), (question,))

    def sources(self) -> Sequence[leadline.Source]:
        return (leadline.open_source(self.haystack),)


if __name__ == "__main__":
    spec = leadline.Spec(model="sim:perfect", tasks=f"{__file__}:Colours", lengths="1k,2k", depths=3, samples=2)
    run = leadline.measure(spec, sys.argv[1] if len(sys.argv) > 1 else None)
    print(run.verdict.headline)
    print(run.totals.classes)
