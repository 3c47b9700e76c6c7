"""One heap for all workers: with glibc's heap a thread, sixteen workers hold 80 MB of holes that documents left."""

from __future__ import annotations

import ctypes
import sys

M_ARENA_MAX = -8  # malloc.h of glibc


def share_heap() -> None:
    """For workers that take turns anyway, as those of the interpreter do. Other C libraries are left as they are."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)
