"""Wraps the kernel's process calls (Linux) that both the judge and the worker use."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Collection
from pathlib import Path

#: A process has fewer ancestors than this.
_MOST_GENERATIONS = 1000
#: The folder of this process's descriptors. Through it a process reaches a folder that it holds
#: open, even if it may no longer walk to it.
OPEN_FILES = Path("/proc/self/fd")
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4


def adopt_orphans() -> None:
    """Makes this process the parent of descendants whose own parent has ended (Linux only).

    Descendants that started a session of their own are included.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descends_from(process: int, ancestors: Collection[int]) -> bool:
    """Returns whether a living process descends from one of the given processes (Linux).

    The result is False if the kernel does not tell.
    """
    for _ in range(_MOST_GENERATIONS):
        try:
            stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        process = int(stat.rpartition(")")[2].split()[1])
        if process in ancestors:
            return True
        if process <= 1:
            return False
    return False


def mapped_code(process: int, folder: Path) -> set[Path]:
    """Returns the files below a folder whose code a process has mapped (Linux).

    A file that was removed or replaced since then has ``(deleted)`` behind its name. The result is
    empty if the kernel does not tell.
    """
    try:
        text = os.fsdecode(Path(f"/proc/{process}/maps").read_bytes())
    except OSError:
        return set()
    entries = (line.split(maxsplit=5) for line in text.split("\n"))
    files = {Path(entry[5]) for entry in entries if len(entry) == 6 and "x" in entry[1] and entry[5].startswith("/")}
    return {file for file in files if file.is_relative_to(folder)}


def adopts_orphans() -> bool:
    """Returns whether this process adopts orphans."""
    answer = ctypes.c_int(0)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Makes the kernel end this process when its parent ends (Linux only).

    Args:
        parent: Process id of the parent. If it has already ended, this process ends at once.
        number: Signal that ends this process.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def offer_to_out_of_memory_killer() -> None:
    """Makes this process and its children the first victims if memory runs out (Linux only)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def hide_memory() -> str:
    """Hides this process's memory from other processes of its user (Linux).

    A hidden process cannot be debugged or profiled from outside and leaves no core dump. Its forks
    are hidden too; programs that it starts are not.

    Returns:
        The reason if the kernel refuses, else an empty string.
    """
    return _set_dumpable(0)


def show_memory() -> str:
    """Undoes ``hide_memory`` in a forked process.

    Returns:
        The reason if the kernel refuses, else an empty string.
    """
    return _set_dumpable(1)


def _set_dumpable(value: int) -> str:
    if sys.platform != "linux":
        return "needs Linux"
    failed = ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, value, 0, 0, 0)
    return os.strerror(ctypes.get_errno()) if failed else ""


def threads_of_this_process() -> int:
    """Counts the threads of this process, including those of libraries (Linux)."""
    return len(list(Path("/proc/self/task").iterdir()))


def queued_seconds() -> float:
    """Returns the seconds that this process's main thread was ready to run and had no processor (Linux).

    Time of other processes on the same processors, and of a container's limit, counts. The result
    is 0 if the kernel does not tell.
    """
    try:
        return int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
