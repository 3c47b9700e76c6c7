"""`leadline run`: ask a model, keep every record, show what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from leadline.cli.flags import Flags, spec_of, with_flags

if TYPE_CHECKING:
    from pathlib import Path

    from leadline.core.spec import Spec
    from leadline.run.summary import Summary


@with_flags
def run(
    flags: Flags,
    keep_prompts: Annotated[
        bool, typer.Option("--keep-prompts", help="Write every prompt to the run's folder.")
    ] = False,
    figure: Annotated[bool, typer.Option(help="Draw heatmap.png at the end.")] = True,
) -> None:
    """Measure a model. The same command again goes on where it stopped."""
    from leadline.cli.outcome import finish

    summary = carry_out(spec_of(flags), flags.out, keep_prompts=keep_prompts)
    finish(summary, as_json=flags.json_, figure=figure)


def carry_out(spec: Spec, out: Path | None, *, keep_prompts: bool = False) -> Summary:
    """One run with its progress on the screen."""
    from leadline.cli.progress import Watcher
    from leadline.run.measure import measure

    with Watcher() as watcher:
        return measure(spec, out, listen=watcher, keep_prompts=keep_prompts)
