"""Changes of its own process that `leadline` makes, and a library call may not: the limit of open files, the heap, and
how often garbage is looked for."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress

from leadline.core import registry
from leadline.core.errors import LeadlineError
from leadline.core.spec import Spec
from leadline.core.workers import FILES_KEPT_FREE, open_files

if sys.platform == "win32":
    resource = None
else:
    import resource

M_ARENA_MAX = -8  # malloc.h of glibc
COLLECT_AFTER = 10_000
"""Objects made and kept until garbage is looked for. Asking a server makes next to no cycles: documents, requests and
replies go when they are no longer used. By default (700) every look goes through all documents in flight."""


def prepare_process(*specs: Spec) -> None:
    """Before models behind a server are asked: many connections and many threads."""
    if not any(map(_is_in_process, specs)):
        allow_files(max(spec.limits.workers for spec in specs) + open_files() + FILES_KEPT_FREE)
        _share_heap()
        gc.set_threshold(COLLECT_AFTER)


def _is_in_process(spec: Spec) -> bool:
    try:
        return registry.provider(registry.ModelName.parse(spec.model)).in_process
    except LeadlineError:
        return True  # reported when the model is opened


def allow_files(needed: int) -> None:
    """Raises the limit of open files as far as this process may."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def _share_heap() -> None:
    """One heap for threads started from now on. With glibc's heap per thread, sixteen workers with documents of 128k
    tokens hold 60 MB of gaps, although Python runs them one at a time."""
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(M_ARENA_MAX, 1)
