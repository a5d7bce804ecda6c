"""Measures the machine's free memory and formats sizes, without importing torch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

#: Files of a control group: its limit, its usage, and the reclaimable part in ``memory.stat``.
#: Version 2 comes first; version 1 has a separate tree for memory.
_VERSIONS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def available_memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Returns the bytes of free memory of the machine, or of the container if it has fewer.

    Args:
        proc: Folder where the kernel describes processes and the machine.
        groups: Folder where the kernel describes control groups, which limit containers.
    """
    return max(0, min([_of_the_machine(proc), *_of_groups(proc, groups)]))


def _of_the_machine(proc: Path) -> int:
    for line in _lines(proc / "meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_groups(proc: Path, groups: Path) -> Iterator[int]:
    """Yields the free bytes of each limited group that this process belongs to."""
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "memory" in controllers.split(","):
            top, names = (groups, _VERSIONS[0]) if controllers == "" else (groups / "memory", _VERSIONS[1])
            folder = top / path.strip("/")
            for one in (folder, *folder.parents):
                with contextlib.suppress(ValueError, IndexError):  # "max", or no such files
                    yield _free_of(one, *names)
                if one == top:
                    break


def _free_of(folder: Path, bound: str, held: str, reclaimable: str) -> int:
    free = int(_lines(folder / bound)[0]) - int(_lines(folder / held)[0])  # most groups have no bound
    given_up = [int(line.split()[1]) for line in _lines(folder / "memory.stat") if line.startswith(reclaimable + " ")]
    return free + sum(given_up)


def _lines(path: Path) -> list[str]:
    """Returns the lines of a file, or none if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def size_text(size_bytes: int) -> str:
    """Formats a size for a reader: ``0 B``, ``12.3 KiB``, ``1.4 GiB``."""
    size, units = float(size_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size_bytes} B" if units[0] == "B" else f"{size:.1f} {units[0]}"
