"""The memory of this machine, within the limit of its container."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

CONTROL_GROUP = Path("/sys/fs/cgroup")


def free_host_memory() -> int | None:
    """Host memory that this process could still get; None where the system does not say."""
    available = []
    with suppress(OSError, ValueError, IndexError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        available.append(next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable")))
    with suppress(OSError, ValueError, KeyError):
        limit, used = (int((CONTROL_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        parts = dict(line.split() for line in (CONTROL_GROUP / "memory.stat").read_text().splitlines())
        # Files that were read, such as the weights, count as used, and make room when memory is asked for.
        available.append(limit - used + int(parts["inactive_file"]))
    return min(available, default=None)


def host_memory() -> int | None:
    """All host memory that this process could use, including what it uses now."""
    sizes = []
    with suppress(ValueError, OSError, AttributeError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(ValueError, OSError):
        sizes.append(int((CONTROL_GROUP / "memory.max").read_text()))
    return min(sizes, default=None)
