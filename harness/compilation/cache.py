"""Built libraries, kept by the judge alone.

A library lies at ``builds/<solution digest>/<build key>.so``: one candidate's build is never another's. The key covers
sources, flags, compiler, torch, harness version, device and mode. Files appear by rename, whole or not at all, so a
build that was killed leaves nothing behind that could block or poison the next; two processes that build the same
thing at once each rename their own.

The cache is bounded. Of one solution it takes ``MAX_SOLUTION_BYTES``. When all solutions together exceed
``MAX_TOTAL_BYTES``, the least recently used ones go, whole, until the rest fits.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness.system.scratch import REMOVED_PREFIX, scratch_folder

MAX_LIBRARY_BYTES = 256 << 20
#: Of one solution, over all runs; an honest one builds a few dozen libraries of a few MB.
MAX_LIBRARIES, MAX_SOLUTION_BYTES = 256, 512 << 20
#: Of all solutions; thousands of honest ones fit.
MAX_TOTAL_BYTES = 8 << 30
_KEY = re.compile(r"[0-9a-f]{16,64}")


class BuildCache:
    """The folder of built libraries.

    Args:
        folder: Where it lies; made when the first library is kept.
        max_bytes: What all libraries together may take.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_TOTAL_BYTES):
        self._folder = folder
        self._max_bytes = max_bytes

    def libraries(self, digest: str) -> dict[str, Path]:
        """Returns what is kept for a solution, build key to library, and marks it as used now."""
        folder = self._folder / digest
        if not folder.is_dir():
            return {}
        with contextlib.suppress(OSError):  # it has gone, or may only be read
            os.utime(folder)
        return {path.stem: path for path in folder.glob("*.so") if _KEY.fullmatch(path.stem)}

    def keep(self, digest: str, key: str, built: Path) -> bool:
        """Copy a library that a worker has built into the cache.

        The worker is not trusted: only a plain file of a believable size under a well-formed key is taken, while the
        solution's others leave room for it, and neither it nor its folder may be a link to somewhere that only the
        judge can read.

        Args:
            digest: The solution's digest.
            key: The build key.
            built: The file in the worker's folder.

        Returns:
            Whether it was taken.
        """
        if not _KEY.fullmatch(key):
            return False
        try:
            descriptor = _open_without_links(built)
        except (OSError, ValueError):  # a name with a NUL is no path at all
            return False
        status = os.fstat(descriptor)
        plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        folder = self._folder / digest
        if not plain or not 0 < status.st_size <= MAX_LIBRARY_BYTES or not _has_room(folder, key, status.st_size):
            os.close(descriptor)
            return False
        with os.fdopen(descriptor, "rb") as source:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, suffix=".partial", delete=False) as target:
                shutil.copyfileobj(source, target)
            Path(target.name).chmod(0o755)
            Path(target.name).replace(folder / f"{key}.so")
        self._trim(digest)
        return True

    def _trim(self, kept: str) -> None:
        """Removes the solutions that were used least recently while all take too much; one process at a time does."""
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(OSError):  # a file system without locks: then two may remove more than one would
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return
            solutions = sorted(_solutions(self._folder))
            excess = sum(size for _, size, _ in solutions) - self._max_bytes
            for _, size, folder in solutions:
                if excess <= 0:
                    break
                if folder.name != kept and _removed(folder):
                    excess -= size
        finally:
            os.close(descriptor)


def _solutions(cache: Path) -> Iterator[tuple[int, int, Path]]:
    """When each solution's folder was used last, its size in bytes, and where it lies; without those that vanish."""
    for folder in cache.iterdir():
        with contextlib.suppress(OSError):
            if not folder.is_symlink():
                used = folder.stat().st_mtime_ns
                yield used, sum(path.lstat().st_size for path in folder.iterdir()), folder


def _removed(folder: Path) -> bool:
    """Renames a folder out of the cache, so that nobody sees half of it, and deletes it; False where it has gone."""
    with scratch_folder(REMOVED_PREFIX, folder.parent.parent) as place:
        try:
            folder.rename(place / folder.name)
        except OSError:
            return False
    return True


def _has_room(folder: Path, key: str, size: int) -> bool:
    """Whether a solution's folder stays within its bounds with a library of this size under a key."""
    others = [path for path in folder.glob("*.so") if path.stem != key]
    return len(others) < MAX_LIBRARIES and sum(path.stat().st_size for path in others) + size <= MAX_SOLUTION_BYTES


def _open_without_links(built: Path) -> int:
    """Open a file for reading; its folder and that folder's own are no links either."""
    inner = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    outer = os.open(built.parent.parent, inner | os.O_DIRECTORY)
    try:
        folder = os.open(built.parent.name, inner | os.O_DIRECTORY, dir_fd=outer)
        try:
            return os.open(built.name, inner | os.O_NONBLOCK, dir_fd=folder)
        finally:
            os.close(folder)
    finally:
        os.close(outer)
