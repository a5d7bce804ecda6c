"""Finds and ends the processes that a candidate leaves behind, in any session."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

#: The most sweeps for leftover processes. A program that forks faster than that survives.
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
    """List a process's living descendants (Linux); a worker adopts orphans, so it finds them too."""
    children = _children()
    found, waiting = [], [process]
    while waiting:
        born = [child for child, _ in children.get(waiting.pop(), [])]
        found += born
        waiting += born
    ended = {child for born in children.values() for child, is_over in born if is_over}
    return [one for one in found if one not in ended]


def end_descendants(spared: Collection[int] = ()) -> None:
    """End all processes that descend from this one; for a program that is about to end (Linux).

    Args:
        spared: Processes that stay, with all that descends from them.
    """
    sweep(lambda: sorted(set(descendants(os.getpid())).difference(spared, *map(descendants, spared))))


def children_of(process: int) -> list[int]:
    """List a process's descendants from the kernel's lists (Linux), quicker than ``descendants``."""
    found: list[int] = []
    waiting = [process]
    while waiting:
        born = [int(number) for line in _of_threads(waiting.pop(), "children").values() for number in line.split()]
        found += born
        waiting += born
    return found


def processor_seconds(process: int) -> dict[int, float]:
    """Return processor seconds of a process's living threads by their numbers (Linux); none where unknown."""
    lines = _of_threads(process, "schedstat")
    return {thread: int(line.split()[0]) / 1e9 for thread, line in lines.items() if line.strip()}


def used_since(process: int, before: Mapping[int, float]) -> tuple[float, str]:
    """Return processor seconds that a process's threads used, and the name of the one that used most (Linux).

    Args:
        process: Its number.
        before: What ``processor_seconds`` said at the beginning.

    Returns:
        Both; 0 and no name where the kernel does not tell.
    """
    now = processor_seconds(process)
    used = {thread: seconds - before.get(thread, 0.0) for thread, seconds in now.items()}
    name = ""
    with contextlib.suppress(OSError, ValueError):  # The thread has ended, or there is none.
        name = _read(f"/proc/{process}/task/{max(used, key=used.__getitem__)}/comm").strip()
    return sum(used.values()), name


def is_stopped(process: int) -> bool:
    """Return whether all threads of a process are stopped or over (Linux); true where unknown."""
    lines = _of_threads(process, "stat").values()
    return all(line.rpartition(")")[2].split()[0] in "TtZX" for line in lines if line)


def _of_threads(process: int, name: str) -> dict[int, str]:
    """Read a kernel file of each thread of a process; speed matters, since it runs often."""
    folder, found = f"/proc/{process}/task", {}
    try:
        threads = os.listdir(folder)  # noqa: PTH208 - pathlib's takes three times as long
    except OSError:
        return {}
    for thread in threads:
        with contextlib.suppress(OSError):  # The thread has ended.
            found[int(thread)] = _read(f"{folder}/{thread}/{name}")
    return found


def _read(path: str) -> str:
    """Read a file of the kernel's, which gives a page at a time, such as the first 500 of many children."""
    descriptor, found = os.open(path, os.O_RDONLY), b""
    try:
        while part := os.read(descriptor, 1 << 16):
            found += part
        return found.decode(errors="replace")
    finally:
        os.close(descriptor)


def adopted(workers: Collection[int]) -> list[int]:
    """List the living processes (Linux) that this one adopted from ended workers, and descendants.

    Their session differs from this process's. A worker has its own session before it runs anything,
    and no process can enter another. The function also reaps adopted processes that have ended.

    Args:
        workers: Children with sessions of their own that are nobody's orphans. Processes in these
            sessions are not orphans either.
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
    """Map every process to its children, each with whether it is over and waits to be reaped."""
    children: dict[int, list[tuple[int, bool]]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib's takes three times as long
        if not name.isdecimal():
            continue
        with contextlib.suppress(OSError, ValueError):  # The process has ended.
            state, parent = _read(f"/proc/{name}/stat").rpartition(")")[2].split()[:2]
            children.setdefault(int(parent), []).append((int(name), state in "ZX"))
    return children


def processes_of(folder: Path) -> Iterator[int]:
    """Yield processes (Linux) whose ``TMPDIR`` is this folder, or that work in it.

    They belong to a worker that ended before its children, so they are nobody's descendants any
    more.
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
        except OSError:  # The process has ended, or belongs to another user.
            continue
        if inside and int(entry.name) != os.getpid():
            yield int(entry.name)


def _user_of(process: Path) -> int | None:
    """Return the user that a process (a folder of /proc) runs as; None if it has ended."""
    try:
        lines = (process / "status").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("Uid:")), None)
