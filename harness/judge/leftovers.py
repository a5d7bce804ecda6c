"""What a candidate leaves behind: processes, wherever they went, and folders that it locked away."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

#: How often what was left behind is looked for; something that forks faster than that is not ended.
SWEEPS = 100


def sweep(find: Callable[[], Iterable[int]]) -> None:
    """End processes that were left behind, also in sessions of their own, until none is found."""
    for _ in range(SWEEPS):
        left = list(find())
        if not left:
            return
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


def descendants(process: int) -> list[int]:
    """The living children of a process (Linux), and theirs; a worker adopts those whose parents have ended."""
    children = _children()
    found, waiting = [], [process]
    while waiting:
        born = [child for child, _ in children.get(waiting.pop(), [])]
        found += born
        waiting += born
    ended = {child for born in children.values() for child, is_over in born if is_over}
    return [one for one in found if one not in ended]


def children_of(process: int) -> list[int]:
    """The children of a process, and theirs (Linux), where the kernel lists them: quicker than ``descendants``."""
    found: list[int] = []
    waiting = [process]
    while waiting:
        born = [int(number) for line in _of_threads(waiting.pop(), "children") for number in line.split()]
        found += born
        waiting += born
    return found


def processor_seconds(process: int) -> float:
    """Seconds of processors that the living threads of a process have used (Linux); 0 where that is not known."""
    return sum(int(line.split()[0]) for line in _of_threads(process, "schedstat") if line.strip()) / 1e9


def is_stopped(process: int) -> bool:
    """Whether all threads of a process stand still or have ended (Linux); true where that is not known."""
    lines = _of_threads(process, "stat")
    return all(line.rpartition(")")[2].split()[0] in "TtZX" for line in lines if line)


def _of_threads(process: int, name: str) -> list[str]:
    """What the kernel has in a file of this name for each thread of a process; read often, so by the shortest way."""
    folder, found = f"/proc/{process}/task", []
    try:
        threads = os.listdir(folder)  # noqa: PTH208 - pathlib's takes three times as long
    except OSError:
        return []
    for thread in threads:
        with contextlib.suppress(OSError):  # it has ended
            descriptor = os.open(f"{folder}/{thread}/{name}", os.O_RDONLY)
            try:
                found.append(os.read(descriptor, 1 << 16).decode(errors="replace"))
            finally:
                os.close(descriptor)
    return found


def adopted(workers: Collection[int]) -> list[int]:
    """The living processes (Linux) that this one has adopted from workers that have ended, and their descendants.

    Whoever they were started by, their session is another than this process's: a worker has one of its own before it
    runs anything, and there is no way into another. Those that have ended are seen off.

    Args:
        workers: Children that have sessions of their own, and are nobody's orphans, nor is who is in these.
    """
    strangers, own_sessions = [], {os.getsid(0), *workers}
    for child, is_over in _children().get(os.getpid(), []):
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            if child in workers or os.getsid(child) in own_sessions:
                continue
            if is_over:
                os.waitpid(child, os.WNOHANG)
            else:
                strangers.append(child)
    return [*strangers, *(inner for one in strangers for inner in descendants(one))]


def _children() -> dict[int, list[tuple[int, bool]]]:
    """The children of every process, and whether they are over: nobody has asked yet how they ended."""
    children: dict[int, list[tuple[int, bool]]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text(errors="replace").rpartition(")")[2].split()[:2]
        except (OSError, ValueError):  # it has ended
            continue
        children.setdefault(int(parent), []).append((int(entry.parent.name), state in "ZX"))
    return children


def processes_of(folder: Path) -> Iterator[int]:
    """Processes (Linux) whose temporary folder is this one by their environment, or that work in it.

    Those of a worker that has ended before its children: they are nobody's descendants any more.
    """
    mark = os.fsencode(f"TMPDIR={folder}")
    owner = folder.stat().st_uid if folder.exists() else os.geteuid()
    for entry in Path("/proc").glob("[0-9]*"):
        if owner != os.geteuid() and _user_of(entry) == owner:
            yield int(entry.name)
            continue
        try:
            marked = mark in (entry / "environ").read_bytes().split(b"\0")
            inside = marked or (entry / "cwd").readlink().is_relative_to(folder)
        except OSError:  # it has ended, or is somebody else's
            continue
        if inside and int(entry.name) != os.getpid():
            yield int(entry.name)


def _user_of(process: Path) -> int | None:
    """The user that a process (a folder of /proc) runs as; None where it has ended."""
    try:
        lines = (process / "status").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("Uid:")), None)


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
