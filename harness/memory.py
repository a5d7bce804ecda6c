"""How much memory this machine has left; known without importing torch."""

from __future__ import annotations

import os


def available_memory() -> int:
    """Bytes of memory that are free for use."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 - a kernel file, not a path of ours
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
