"""How progress is shown: a bar to people, a line now and then to logs and pipes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from leadline.cli.screen import say

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LINE_SECONDS = 10.0
"""Between two lines where there is no terminal."""


class Shown(Protocol):
    """What there is to show. `planned` is None where nobody can know yet."""

    @property
    def asked(self) -> int: ...

    @property
    def planned(self) -> int | None: ...

    def words(self) -> str:
        """`120 of 264 samples, 3,200 tokens/s, 3 min 20 s left, 2 failed`."""
        ...


class Face(Protocol):
    def update(self, shown: Shown, *, force: bool = False) -> None: ...

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...


class Lines:
    """For logs and pipes."""

    def __init__(self, out: Callable[[str], None] = say) -> None:
        self._out = out
        self._last = time.monotonic()
        self._told = ""

    def update(self, shown: Shown, *, force: bool = False) -> None:
        now = time.monotonic()
        if force or now - self._last >= LINE_SECONDS:
            self._last = now
            if shown.words() != self._told:
                self._told = shown.words()
                self._out(self._told)

    def say(self, text: str) -> None:
        self._out(text)

    def close(self) -> None:
        pass


class Bar:
    """For people."""

    def __init__(self, shown: Shown) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress: Progress = Progress(
            BarColumn(bar_width=None),
            TextColumn("{task.fields[words]}", markup=False),
            console=Console(stderr=True),
            refresh_per_second=4,
            expand=True,
        )
        self._progress.start()
        self._id: TaskID = self._progress.add_task("", total=shown.planned, completed=shown.asked, words="")

    def update(self, shown: Shown, *, force: bool = False) -> None:
        self._progress.update(self._id, total=shown.planned, completed=shown.asked, words=shown.words())

    def say(self, text: str) -> None:
        """Above the bar, which would be drawn over otherwise."""
        self._progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._progress.stop()
