"""What the worker takes away from itself before it touches a candidate."""

from __future__ import annotations

import os
import resource
import sys

#: Bytes that one file may grow to: libraries and compilers' scratch files are far smaller.
MAX_FILE_BYTES = 2 << 30
MAX_OPEN_FILES = 4096
#: Processes and threads. On each core a few pools of OpenMP threads and a compiler with its passes; CUDA's own.
LEAST_PROCESSES, PROCESSES_PER_CORE = 1024, 16
#: Queued signals and POSIX timers. The kernel counts them by user, and the default is some ten thousands.
MAX_PENDING_SIGNALS = 1024


def limit_memory(allowance: int) -> None:
    """Bound the address space to what is mapped now plus ``allowance`` bytes; core dumps are off.

    A tighter bound that the harness was started under stays.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no path object needed
        pages = int(file.read().split()[0])
    _lower(resource.RLIMIT_AS, pages * resource.getpagesize() + allowance)


def limit_files() -> None:
    """Bound single files and open files; core dumps are off."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)
    _lower(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)


def limit_signals() -> None:
    """Bounds queued signals and POSIX timers, so that some are left for other programs of the user (Linux)."""
    if sys.platform == "linux":
        _lower(resource.RLIMIT_SIGPENDING, MAX_PENDING_SIGNALS)


def limit_processes(alone: bool) -> None:
    """Bound how many processes and threads this user may have before this process may start no more (Linux).

    The kernel counts the user's, and none for root itself. For a user who has others, all that the machine runs now
    are taken for that user's: one number to read, which also has those that a container hides.

    Args:
        alone: Whether this user has no other process.

    Raises:
        OSError: The kernel does not say what the machine runs.
    """
    allowance = LEAST_PROCESSES + PROCESSES_PER_CORE * (os.cpu_count() or 1)
    running = 0
    if not alone:
        with open("/proc/loadavg", encoding="ascii") as file:  # noqa: PTH123 - no path object needed
            running = int(file.read().split()[3].partition("/")[2])
    _lower(resource.RLIMIT_NPROC, running + allowance)


def _lower(kind: int, bound: int) -> None:
    """Set a limit for good; a tighter one that the harness was started under stays."""
    _, most = resource.getrlimit(kind)
    least = bound if most == resource.RLIM_INFINITY else min(bound, most)
    resource.setrlimit(kind, (least, least))
