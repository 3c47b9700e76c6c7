"""One heap and one core for all workers, since they run one at a time: the interpreter lets no two of them run at once.

With glibc's heap a thread, sixteen workers hold 80 MB of holes that documents left. With two cores, sixty-four workers
hand the interpreter back and forth between them, and spend a sixth of a run's CPU time on that.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Set

M_ARENA_MAX = -8  # malloc.h of glibc


def share_heap() -> None:
    """For threads made from now on. Other C libraries are left as they are."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def share_core() -> None:
    """For the thread that calls this, among others of the process that do. Only for threads that ask and wait: whatever
    they would start to compute with stays on that core too."""
    if sys.platform == "linux" and getattr(sys, "_is_gil_enabled", lambda: True)():
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            os.sched_setaffinity(threading.get_native_id(), {core_of(os.getpid(), os.sched_getaffinity(0))})


def core_of(process: int, cores: Set[int]) -> int:
    """Always the same of a process, and another of the next, so that runs side by side do not meet on one."""
    return sorted(cores)[process % len(cores)]
