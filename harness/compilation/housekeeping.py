"""Measures, bounds and clears the harness's home, except the store, while evaluations may run.

An entry leaves its place by a rename, as a whole, before it is deleted. So nobody ever sees half of
a build. The emulator's runtime stays while an evaluation holds it (``hold``). The functions neither
follow nor count symbolic links.
"""

from __future__ import annotations

import contextlib
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

#: The folders of the home that a user may delete at any time. The store is none of them.
PARTS = ("builds", "emulator", "logs", REFERENCES)
#: Limits for the logs of failed builds; one has at most 500,000 characters.
MAX_LOGS, MAX_LOGS_BYTES = 4096, 256 << 20
_MAX_BYTES = {"builds": MAX_TOTAL_BYTES, "logs": MAX_LOGS_BYTES}
_LIBRARY_SUFFIX = ".so"


@dataclass(frozen=True)
class CacheUsage:
    """The content of one folder of the home, or what ``clear`` removed from it.

    Attributes:
        name: The folder's name.
        entries: The number of its entries: solutions with builds, versions of the emulator's
            runtime, logs, and kinds of files made from references (compiled code, counts).
        libraries: The number of shared libraries in them.
        bytes: The size of their files.
        kept: The entries that ``clear`` left, and why.
        max_bytes: The folder's limit; None if it has none.
    """

    name: str
    entries: int = 0
    libraries: int = 0
    bytes: int = 0
    kept: tuple[str, ...] = ()
    max_bytes: int | None = None


def measure(home: Path) -> list[CacheUsage]:
    """Returns the usage of each folder of the home; zero for a missing one.

    Raises:
        HarnessError: The home cannot be read.
    """
    try:
        return [_weighed(name, _entries(home, name)) for name in PARTS]
    except OSError as error:
        raise HarnessError(f"cannot read {home}: {error}; choose another --home, or make it readable") from None


def keep_log(folder: Path, name: str, text: str, most: int = MAX_LOGS, most_bytes: int = MAX_LOGS_BYTES) -> Path:
    """Writes a log and removes the oldest others while all together exceed a limit.

    Args:
        folder: The folder of the logs. It is created if it is missing.
        name: The log's name; an earlier log of that name is replaced.
        text: Its text.
        most: The limit for the number of logs.
        most_bytes: The limit for all logs together.

    Raises:
        OSError: The log cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8", errors="replace")
    found = []
    for other in folder.iterdir():
        with contextlib.suppress(OSError):  # another process removed it
            status = other.lstat()
            found.append((other == path, status.st_mtime_ns, status.st_size, other))
    count, size = len(found), sum(one for _, _, one, _ in found)
    for is_kept, _, freed, other in sorted(found):
        if is_kept or (count <= most and size <= most_bytes):
            break
        with contextlib.suppress(OSError):  # it has gone, or is a folder of nobody's
            other.unlink()
        count, size = count - 1, size - freed
    return path


def clear(home: Path) -> list[CacheUsage]:
    """Removes builds, logs and the emulator's runtime. Entries in use stay.

    Returns:
        What was removed, by folder.

    Raises:
        HarnessError: An entry cannot be removed.
    """
    try:
        removed = [_cleared(home, name) for name in PARTS]
        for leftover in home.glob(f"{REMOVED_PREFIX}*"):  # left by a killed clear
            shutil.rmtree(leftover)
        return removed
    except OSError as error:
        raise HarnessError(f"cannot empty {home}: {error}; make it writable, or choose another --home") from None


def hold(library: Path) -> int | None:
    """Keeps ``clear`` from removing a library's folder while this process has the descriptor open.

    Returns:
        A file descriptor; None if the library has gone.
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
        raise NotADirectoryError(f"{home} is not a folder")
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(folder.iterdir())


def _weighed(name: str, entries: list[Path], kept: tuple[str, ...] = ()) -> CacheUsage:
    libraries = size = 0
    for entry in entries:
        for path, status in _files(entry):
            libraries += path.suffix == _LIBRARY_SUFFIX
            size += status.st_size
    return CacheUsage(
        name, entries=len(entries), libraries=libraries, bytes=size, kept=kept, max_bytes=_MAX_BYTES.get(name)
    )


def _files(entry: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yields an entry's files: itself, or the files below it.

    Files that vanish meanwhile are left out.
    """
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
    """Renames all entries of a folder out of their places, then deletes them."""
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
    """Renames an entry, unless a process holds one of its libraries.

    A process that wants to hold it now waits for the rename.

    Returns:
        Whether the entry was renamed.
    """
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
    """Locks a file exclusively. On a file system without locks the function does nothing.

    Raises:
        BlockingIOError: Another process holds the file.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return
