"""What both the judge and the worker ask of the kernel about processes (Linux)."""

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
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent has ended, wherever they went; nothing but on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descends_from(process: int, ancestors: Collection[int]) -> bool:
    """Whether one of these is a living process's parent, or its parent's, and so on (Linux); false where unknown."""
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


def adopts_orphans() -> bool:
    """Whether this process does."""
    answer = ctypes.c_int(0)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel end this process when its parent ends (Linux); nothing elsewhere.

    Args:
        parent: The parent's process id; if it is gone already, this process ends at once.
        number: The signal that ends it.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def offer_to_out_of_memory_killer() -> None:
    """Has the kernel end this process, and what it starts, before any other when memory runs out (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def hide_memory() -> str:
    """Have the kernel keep this process's memory from others of its user (Linux); why it cannot, empty where it does.

    It can then not be debugged or profiled from outside either, and leaves no core dump. What it forks is hidden, too;
    what it starts is not.
    """
    return _set_dumpable(0)


def show_memory() -> str:
    """Undo ``hide_memory``, in what was forked; why it cannot, empty where it does."""
    return _set_dumpable(1)


def _set_dumpable(value: int) -> str:
    if sys.platform != "linux":
        return "needs Linux"
    failed = ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, value, 0, 0, 0)
    return os.strerror(ctypes.get_errno()) if failed else ""


def threads_of_this_process() -> int:
    """How many threads this process has, those of libraries among them (Linux)."""
    return len(list(Path("/proc/self/task").iterdir()))
