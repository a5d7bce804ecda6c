"""Folders that are gone when they are closed, and, where their owner was killed, when another one is made.

An owner holds a lock on its folder, which the system releases with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

#: How folders begin in which something is being built, beside where it will be.
BUILDING_PREFIX = ".build-"
#: How folders begin that hold what is being removed.
REMOVED_PREFIX = ".removed-"
# A folder is locked a moment after it is made, so a new one is never taken for an abandoned one.
_ABANDONED_AFTER_S = 60.0


class ScratchFolder:
    """A private folder; what killed owners left beside it under the same prefix is removed.

    Args:
        prefix: Beginning of its name.
        parent: Where it is made, and made itself when missing; the system's place for temporary files by default.

    Attributes:
        path: The folder.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, prefix: str, parent: Path | None = None):
        place = Path(tempfile.gettempdir()) if parent is None else parent
        place.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(place, prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # a file system without locks: nobody finds it abandoned
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Remove it; nothing where that was done."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            remove_folder(self.path)


@contextlib.contextmanager
def scratch_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A ``ScratchFolder`` for the block.

    Yields:
        Its path.
    """
    with contextlib.closing(ScratchFolder(prefix, parent)) as folder:
        yield folder.path


def _remove_abandoned(place: Path, prefix: str) -> None:
    for folder in place.glob(f"{prefix}*"):
        try:
            known = folder.lstat()
            if known.st_uid != os.geteuid() or time.time() - known.st_mtime < _ABANDONED_AFTER_S:
                continue
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # removed by someone else, or not ours to open
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its owner lives, or nobody can tell
            continue
        else:
            remove_folder(folder)
        finally:
            os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, also what a candidate has locked away or nested deeply.

    Everything goes by descriptors, which a link in the place of a folder cannot lead elsewhere.
    """
    try:
        top = _open_folder(str(folder), None)
    except OSError:  # it is gone, or no folder any more
        return
    try:
        _empty(top)
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _empty(top: int) -> None:
    """Remove what is in a folder. Inner folders move up into it first, so that no depth is too great."""
    token = os.urandom(8).hex()  # names that nothing in there has
    fresh = (f"{token}-{number}" for number in itertools.count())
    before = None
    while names := os.listdir(top):
        if names == before:  # nothing of this can be removed
            return
        before = names
        for name in names:
            with contextlib.suppress(OSError):
                if stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
                    _remove_inner(name, top, fresh)
                else:
                    os.unlink(name, dir_fd=top)


def _remove_inner(name: str, top: int, fresh: Iterator[str]) -> None:
    """Remove a folder in the top one; the folders in it get fresh names in the top one.

    Raises:
        OSError: Something in it cannot be moved or removed.
    """
    folder = _open_folder(name, top)
    try:
        for inner in os.listdir(folder):  # noqa: PTH208 - a descriptor, not a path
            if stat.S_ISDIR(os.lstat(inner, dir_fd=folder).st_mode):
                os.close(_open_folder(inner, folder))  # a folder that may not be written cannot be moved
                os.rename(inner, next(fresh), src_dir_fd=folder, dst_dir_fd=top)
            else:
                os.unlink(inner, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)


def _open_folder(name: str, parent: int | None) -> int:
    """A descriptor of a folder, which is unlocked; the caller closes it.

    Raises:
        OSError: It is no folder (but a link to one, say), or not this user's.
    """
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder = os.open(name, os.O_RDONLY | flags, dir_fd=parent)
    except PermissionError:
        if sys.platform != "linux":
            os.chmod(name, 0o700, dir_fd=parent, follow_symlinks=False)
        else:
            handle = os.open(name, os.O_PATH | flags, dir_fd=parent)
            try:
                Path(f"/proc/self/fd/{handle}").chmod(0o700)  # this very folder, whatever has its name by now
            finally:
                os.close(handle)
        return os.open(name, os.O_RDONLY | flags, dir_fd=parent)
    os.fchmod(folder, 0o700)
    return folder
