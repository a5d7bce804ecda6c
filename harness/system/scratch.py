"""Creates scratch folders, which disappear when their owner closes them.

An owner holds a lock on its folder, which the system releases with the process. If an owner was
killed, the next one to use the same prefix removes its folder.
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

from harness.errors import HarnessError
from harness.system.text import one_line

#: Prefix of folders for a build in progress, which lie beside their final place.
BUILDING_PREFIX = ".build-"
#: Prefix of folders whose content is being removed.
REMOVED_PREFIX = ".removed-"
# A folder is locked a moment after its creation. This age keeps a new folder from looking
# abandoned.
_ABANDONED_AFTER_S = 60.0


def check_temporary_folder() -> None:
    """Checks that candidates can be built in the system's temporary folder and loaded from there.

    Raises:
        HarnessError: They cannot. The message says why, and what to do.
    """
    place = tempfile.gettempdir()
    fault = ""
    if "\n" in place or "\r" in place:
        fault = "has a line break in its name, which compilers do not take"
    elif any("\ud800" <= one <= "\udfff" for one in place):  # bytes that the locale does not decode
        fault = "has a name that is no text in this locale"
    elif hasattr(os, "ST_NOEXEC") and os.statvfs(place).f_flag & os.ST_NOEXEC:
        fault = "is mounted noexec, so that no library can be loaded from there"
    if fault:
        raise HarnessError(f"the temporary folder {one_line(place)} {fault}: set TMPDIR to another folder")


class ScratchFolder:
    """A private folder. Its creation removes those that killed owners left under the same prefix.

    Args:
        prefix: Beginning of the folder's name.
        parent: Folder to create it in, itself created if it is missing; by default the system's
            temporary folder.

    Attributes:
        path: Path of the folder.

    Raises:
        OSError: The folder cannot be created.
    """

    def __init__(self, prefix: str, parent: Path | None = None):
        place = Path(tempfile.gettempdir()) if parent is None else parent
        place.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(place, prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # a file system without locks, where no folder looks abandoned
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Removes the folder; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            remove_folder(self.path)


@contextlib.contextmanager
def scratch_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Provides a ``ScratchFolder`` for the block.

    Yields:
        The path of the folder.
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
            continue  # another process removed it, or this user may not open it
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its owner lives, or the lock does not tell
            continue
        else:
            remove_folder(folder)
        finally:
            os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Removes a folder with all its content, even if a candidate has locked or deeply nested it.

    The function works on descriptors. A link that replaces a folder cannot lead it elsewhere.
    """
    try:
        top = _open_folder(str(folder), None)
    except OSError:  # it is gone, or is no longer a folder
        return
    try:
        _empty(top)
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _empty(top: int) -> None:
    """Removes the content of a folder.

    Inner folders first move up into this folder, so that no nesting is too deep.
    """
    token = os.urandom(8).hex()  # no existing name contains it
    fresh = (f"{token}-{number}" for number in itertools.count())
    before = None
    while names := os.listdir(top):
        if names == before:  # nothing here can be removed
            return
        before = names
        for name in names:
            with contextlib.suppress(OSError):
                if stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
                    _remove_inner(name, top, fresh)
                else:
                    os.unlink(name, dir_fd=top)


def _remove_inner(name: str, top: int, fresh: Iterator[str]) -> None:
    """Removes a folder inside the top folder and moves its subfolders to the top under fresh names.

    Raises:
        OSError: An entry cannot be moved or removed.
    """
    folder = _open_folder(name, top)
    try:
        for inner in os.listdir(folder):  # noqa: PTH208 - a descriptor, not a path
            if stat.S_ISDIR(os.lstat(inner, dir_fd=folder).st_mode):
                os.close(_open_folder(inner, folder))  # a folder without write permission cannot be moved
                os.rename(inner, next(fresh), src_dir_fd=folder, dst_dir_fd=top)
            else:
                os.unlink(inner, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)


def _open_folder(name: str, parent: int | None) -> int:
    """Opens a folder after granting its owner all permissions. The caller closes the descriptor.

    Raises:
        OSError: It is no folder (a link to one, for example), or belongs to another user.
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
                Path(f"/proc/self/fd/{handle}").chmod(0o700)  # this very folder, even if it lost its name
            finally:
                os.close(handle)
        return os.open(name, os.O_RDONLY | flags, dir_fd=parent)
    os.fchmod(folder, 0o700)
    return folder
