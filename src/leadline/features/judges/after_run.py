"""Judges at the end of a run, as its spec asks for them: the entry point of `leadline.after_run`.

What grades is imported when there is something to grade: reports only ask for the payments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from leadline.core.errors import FailedSamples
from leadline.core.money import Payment
from leadline.core.spec import Spec
from leadline.run.after_run import AfterRun
from leadline.run.estimate import Cost
from leadline.run.events import Listener
from leadline.run.interrupt import Stop
from leadline.run.plan import Plan


class Judges(AfterRun):
    def wants(self, spec: Spec) -> bool:
        return bool(spec.judges.models)

    def check(self, spec: Spec, listen: Listener, *, has_prices: bool = False) -> None:
        from leadline.features.judges.asking import check_judges

        check_judges(spec, has_prices=has_prices)

    def cost(self, plan: Plan) -> Mapping[str, Cost]:
        from leadline.features.judges.samples import judge_cost

        return dict.fromkeys(plan.spec.judges.models, judge_cost(plan))

    def run(self, folder: Path, spec: Spec, listen: Listener, stop: Stop) -> None:
        from leadline.features.judges.asking import judge_run

        judging = spec.judges  # the folder was written from this spec, so its files are those that the user named
        result = judge_run(
            folder, judging.models, rubric=judging.rubric, own_family=judging.own_family,
            min_accuracy=judging.min_accuracy, limits=spec.limits, listen=listen, stop=stop,
        )  # fmt: skip
        if (failed := failed_verdicts(result.failed, folder)) is not None:
            raise failed

    def payments(self, folder: Path) -> Iterable[Payment]:
        from leadline.features.judges.payments import payments

        return payments(folder)


def failed_verdicts(count: int, folder: Path) -> FailedSamples | None:
    fix = "run the same command again: only these are asked"
    return FailedSamples(f"{count:,} verdicts could not be asked for", where=str(folder), fix=fix) if count else None


JUDGES = Judges()
