"""The processes that a candidate leaves behind, wherever they went."""

from __future__ import annotations

import contextlib
import os
import signal
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
