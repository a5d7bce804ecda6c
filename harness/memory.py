"""How much memory this machine has left, and how a size is told; known without importing torch."""

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


def size_text(size_bytes: int) -> str:
    """A size for a reader: ``0 B``, ``12.3 KiB``, ``1.4 GiB``."""
    size, units = float(size_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size_bytes} B" if units[0] == "B" else f"{size:.1f} {units[0]}"
