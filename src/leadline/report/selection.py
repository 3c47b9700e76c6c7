"""What a click on a part of a figure asks for, as a short word that travels inside the figure."""

from __future__ import annotations

from leadline.core.types import FailureClass

ANY = "*"


def selection(
    run: int,
    task: int | None = None,
    length: int | None = None,
    depth: float | str | None = ANY,
    failure_class: FailureClass | None = None,
) -> str:
    """`run/task/length/depth/class`: numbers of run and task, tokens, depth (`-` for none); `*` for any."""
    parts = (run, _or_any(task), _or_any(length), "-" if depth is None else depth, _or_any(failure_class))
    return "/".join(map(str, parts))


def _or_any(value: object) -> object:
    return ANY if value is None else value
