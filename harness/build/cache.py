"""Built libraries, kept by the judge alone.

A library lies at ``builds/<solution digest>/<build key>.so``: one candidate's build is never another's. The key covers
sources, flags, compiler, torch, harness version, device and mode. Files appear by rename, whole or not at all, so a
build that was killed leaves nothing behind that could block or poison the next; two processes that build the same
thing at once each rename their own.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

MAX_LIBRARY_BYTES = 512 << 20
#: Of one solution, over all runs; an honest one builds a few dozen libraries of a few MB.
MAX_LIBRARIES, MAX_SOLUTION_BYTES = 256, 2 << 30
_KEY = re.compile(r"[0-9a-f]{16,64}")


class BuildCache:
    """The folder of built libraries.

    Args:
        folder: Where it lies; made when the first library is kept.
    """

    def __init__(self, folder: Path):
        self._folder = folder

    def libraries(self, digest: str) -> dict[str, Path]:
        """What is kept for a solution: build key to library."""
        folder = self._folder / digest
        if not folder.is_dir():
            return {}
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
