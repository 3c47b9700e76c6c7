"""The threads that ask: as many as are wanted, or as this process may have. For runs and for judges."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

from leadline.core.errors import RunStopped
from leadline.core.format import format_count
from leadline.run.events import Listener, Note

if sys.platform == "win32":
    resource = None
else:
    import resource

FILES_KEPT_FREE = 16
"""Files that may be open at the same time as the connections of workers: records, modules, a server's tokenizer."""


def start_workers(work: Callable[[], None], count: int, listen: Listener) -> list[threading.Thread]:
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
            listen(Note(f"{fewer}: no more threads (ulimit -u, ulimit -v)"))
            break
        started.append(thread)
    return started


def within_file_limit(count: int, listen: Listener) -> int:
    """How many of these workers, with a connection each, this process may have; at least one. The limit itself is the
    process's own: `leadline` raises its own in leadline.cli.process."""
    if resource is None:
        return count
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return count
    allowed = max(1, min(count, soft - open_files() - FILES_KEPT_FREE))
    if allowed < count:
        fewer = f"{format_count(allowed, 'worker')} instead of {count}"
        listen(Note(f"{fewer}: this process may open no more files (ulimit -n)"))
    return min(allowed, count)


def open_files() -> int:
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return FILES_KEPT_FREE
