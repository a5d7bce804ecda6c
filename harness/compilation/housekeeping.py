"""What lies in the harness's home besides the store, and how it is emptied beside running evaluations.

An entry leaves its place by a rename, whole, before it is deleted: nobody ever sees half of a build. The emulator's
runtime stays while an evaluation holds it (``hold``). Symbolic links are neither followed nor counted.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.compilation.cache import MAX_TOTAL_BYTES
from harness.errors import HarnessError
from harness.project.paths import REFERENCES
from harness.system.scratch import BUILDING_PREFIX, REMOVED_PREFIX

#: Folders of the home that can be deleted at any time; the store is none of them.
PARTS = ("builds", "emulator", "logs", REFERENCES)
_MAX_BYTES = {"builds": MAX_TOTAL_BYTES}
_LIBRARY_SUFFIX = ".so"


@dataclass(frozen=True)
class CacheUsage:
    """What lies in one folder of the home, or was removed from it.

    Attributes:
        name: The folder's name.
        entries: Its entries: solutions with builds, versions of the emulator's runtime, logs, and kinds of what
            was made of references (compiled code, counts).
        libraries: Shared libraries in them.
        bytes: Size of their files.
        kept: Entries that ``clear`` left, and why.
        max_bytes: What the folder may take; None where it has no bound.
    """

    name: str
    entries: int = 0
    libraries: int = 0
    bytes: int = 0
    kept: tuple[str, ...] = ()
    max_bytes: int | None = None


def measure(home: Path) -> list[CacheUsage]:
    """What lies in the home; nothing where it is missing.

    Raises:
        HarnessError: It cannot be read.
    """
    try:
        return [_weighed(name, _entries(home, name)) for name in PARTS]
    except OSError as error:
        raise HarnessError(f"cannot read {home}: {error}; choose another --home, or make it readable") from None


def clear(home: Path) -> list[CacheUsage]:
    """Remove builds, logs and the emulator's runtime; what is in use stays.

    Returns:
        What was removed, by folder.

    Raises:
        HarnessError: Something cannot be removed.
    """
    try:
        removed = [_cleared(home, name) for name in PARTS]
        for leftover in home.glob(f"{REMOVED_PREFIX}*"):  # of a clear that was killed
            shutil.rmtree(leftover)
        return removed
    except OSError as error:
        raise HarnessError(f"cannot empty {home}: {error}; make it writable, or choose another --home") from None


def hold(library: Path) -> int | None:
    """Keep ``clear`` from removing a library's folder for as long as this process has the result open.

    Returns:
        A file descriptor; None where the library has gone.
    """
    try:
        descriptor = os.open(library, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.path.samestat(os.fstat(descriptor), library.stat()):
            return descriptor
    except FileNotFoundError:
        pass
    except OSError:  # a file system without locks: nothing can be held there
        return descriptor
    os.close(descriptor)
    return None


def _entries(home: Path, name: str) -> list[Path]:
    folder = home / name
    if home.exists() and not home.is_dir():
        raise NotADirectoryError(f"{home} is no folder")
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(folder.iterdir())


def _weighed(name: str, entries: list[Path], kept: tuple[str, ...] = ()) -> CacheUsage:
    libraries = size = 0
    for entry in entries:
        for path, status in _files(entry):
            libraries += path.suffix == _LIBRARY_SUFFIX
            size += status.st_size
    return CacheUsage(name, len(entries), libraries, size, kept, _MAX_BYTES.get(name))


def _files(entry: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """An entry's files: itself, or what lies below it; what vanishes meanwhile is left out."""
    if entry.is_symlink():
        return
    if entry.is_file():
        below = [entry]
    else:
        below = [Path(folder, file) for folder, _, files in os.walk(entry) for file in files]
    for path in below:
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if not path.is_symlink():
            yield path, status


def _cleared(home: Path, name: str) -> CacheUsage:
    """Rename all entries of a folder out of their places, then delete them."""
    entries = _entries(home, name)
    if not entries:
        return CacheUsage(name, max_bytes=_MAX_BYTES.get(name))
    place = Path(tempfile.mkdtemp(prefix=REMOVED_PREFIX, dir=home))
    try:
        going, kept = [], []
        for number, entry in enumerate(entries):
            if entry.name.startswith(BUILDING_PREFIX):
                kept.append(f"{entry.name}: being built; if not, the next build removes it")
                continue
            try:
                moved = _moved(entry, place / str(number), is_held=name == "emulator")
            except FileNotFoundError:  # another process was first
                continue
            if moved:
                going.append(place / str(number))
            else:
                kept.append(f"{entry.name}: in use by an evaluation")
        return _weighed(name, going, tuple(kept))
    finally:
        shutil.rmtree(place)


def _moved(entry: Path, target: Path, is_held: bool) -> bool:
    """Rename an entry, unless a process holds a library of it; whoever wants to hold it now waits for the rename."""
    locked: list[int] = []
    try:
        if is_held and not entry.is_symlink():
            for library in entry.glob(f"*{_LIBRARY_SUFFIX}"):
                locked.append(os.open(library, os.O_RDONLY | os.O_NOFOLLOW))
                _lock(locked[-1])
        entry.rename(target)
    except BlockingIOError:
        return False
    finally:
        for descriptor in locked:
            os.close(descriptor)
    return True


def _lock(descriptor: int) -> None:
    """Lock a file exclusively; nothing where the file system has no locks.

    Raises:
        BlockingIOError: Another process holds it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return
