"""The threads that ask: as many as are wanted, or as this process may have. For runs, judges, checks of a server and a
server's tokenizer. A process that gets no more threads or files continues with fewer, and calls `notify`."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from leadline.core.errors import RunStopped
from leadline.core.format import format_count

if sys.platform == "win32":
    resource = None
else:
    import resource

T = TypeVar("T")

FILES_KEPT_FREE = 16
"""Files that may be open at the same time as the connections of workers: records, modules, a server's tokenizer."""


def start_workers(work: Callable[[], None], count: int, notify: Callable[[str], None]) -> list[threading.Thread]:
    """As many threads as can be started; at least one, if any are wanted."""
    started: list[threading.Thread] = []
    for number in range(count):
        # Daemon threads, so that a second Ctrl-C does not wait for them.
        thread = threading.Thread(target=work, name=f"asker-{number}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads
            if not started:
                raise RunStopped(
                    "no thread can be started", where="ulimit -u, ulimit -v", fix="allow more memory or processes"
                ) from None
            fewer = f"{format_count(number, 'worker')} instead of {count}"
            notify(f"{fewer}: no more threads (ulimit -u, ulimit -v)")
            break
        started.append(thread)
    return started


def call_at_once(calls: Sequence[Callable[[], T]], count: int) -> list[T]:
    """The results of all calls, in order, made by at most `count` threads. After an error no further call begins, and
    the error is raised when those in progress have ended.

    Daemon threads rather than a pool, which Python joins at exit: after Ctrl-C the program must not wait for a server
    that hangs."""
    if min(count, len(calls)) < 2:
        return [call() for call in calls]
    waiting, results, errors = deque(enumerate(calls)), dict[int, T](), list[BaseException]()

    def work() -> None:
        try:
            while (numbered := _take(waiting)) is not None:
                number, call = numbered
                results[number] = call()
        except BaseException as error:
            errors.append(error)
            waiting.clear()

    try:
        for thread in start_workers(work, min(count, len(calls)), lambda fewer: None):
            thread.join()
    finally:
        waiting.clear()
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(calls))]


def _take(waiting: deque[T]) -> T | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None


def within_file_limit(count: int, notify: Callable[[str], None]) -> int:
    """The number of these workers, with a connection each, that this process may have; at least one. The limit itself
    is the process's own: `leadline` raises its own in leadline.cli.process."""
    if resource is None:
        return count
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return count
    allowed = max(1, min(count, soft - open_files() - FILES_KEPT_FREE))
    if allowed < count:
        fewer = f"{format_count(allowed, 'worker')} instead of {count}"
        notify(f"{fewer}: this process may open no more files (ulimit -n)")
    return min(allowed, count)


def open_files() -> int:
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return FILES_KEPT_FREE
