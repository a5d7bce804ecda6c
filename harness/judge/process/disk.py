"""Watches the disk while a candidate runs: the size of its folder, and the free space."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from harness.judge.process.pacing import Paced
from harness.system.memory import size_text

#: An honest build takes some hundred MB and a few hundred files.
MAX_FOLDER_BYTES = 4 << 30
MAX_FOLDER_ENTRIES = 100_000
MAX_FOLDER_DEPTH = 64
MIN_FREE_BYTES = 64 << 20
#: Seconds between two checks.
_INTERVAL_S = 1.0
#: What a fault says if others may have filled the disk.
OTHERS_MAY_HAVE = "free space if other programs used it"


class DiskWatch:
    """Watches a worker's folder and its disk.

    Sizes are apparent ones. The watch does not see open files without a name, nor files that the
    judge's user cannot read. Those show only in the free space.

    Args:
        folder: The worker's folder.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._paced = Paced(self._look, _INTERVAL_S)

    def fault(self) -> str:
        """Return what is wrong, and what to do; empty if nothing is, or right after a check."""
        return self._paced.fault()

    def shortage(self) -> str:
        """Return why nothing can be judged on this disk; empty if there is room."""
        free = _free_bytes(self._folder)
        if free is None or free >= MIN_FREE_BYTES:
            return ""
        place = self._folder.parent
        return f"the disk of {place} is full ({size_text(free)} free): free some space, or set TMPDIR to another folder"

    def _look(self) -> str:
        free = _free_bytes(self._folder)
        if free is not None and free < MIN_FREE_BYTES:
            return (
                f"the disk of {self._folder.parent} is full: less than {size_text(MIN_FREE_BYTES)} were free "
                f"while the candidate ran; write less, or {OTHERS_MAY_HAVE}"
            )
        total_bytes = 0
        for number, size in enumerate(_sizes(str(self._folder)), 1):
            if size is None:
                return f"its folder is nested more than {MAX_FOLDER_DEPTH} levels deep; nest less"
            total_bytes += size
            if number > MAX_FOLDER_ENTRIES:
                return f"its folder has more than {MAX_FOLDER_ENTRIES} files; write fewer, and remove used ones"
            if total_bytes > MAX_FOLDER_BYTES:
                bound = size_text(MAX_FOLDER_BYTES)
                return f"its folder holds more than {bound}; write less, and remove used files"
        return ""


def _free_bytes(folder: Path) -> int | None:
    """Return the bytes that a user may still write on a folder's disk; None if unknown."""
    try:
        system = os.statvfs(folder)
    except OSError:
        return None
    return system.f_bavail * system.f_frsize if system.f_blocks else None


def _sizes(folder: str, parent: int | None = None, depth: int = 0) -> Iterator[int | None]:
    """Yield the size of everything in a folder, in bytes; None for a folder that is nested too deeply.

    The walk uses descriptors and follows no link. It leaves out files that vanish meanwhile or
    cannot be read.
    """
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError:
        return
    try:
        with os.scandir(opened) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    yield status.st_size
                    if not stat.S_ISDIR(status.st_mode):
                        continue
                    if depth == MAX_FOLDER_DEPTH:
                        yield None
                    yield from _sizes(entry.name, opened, depth + 1)
    finally:
        os.close(opened)
