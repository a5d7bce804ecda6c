"""What the worker gives up before it meets a candidate (Linux): rights to gain, files, sockets, other processes.

Each layer stands by itself. What a machine does not have is said, and the others hold. Calls go through libc by ctypes;
the numbers are those of the kernel's own headers, and Landlock and seccomp are described in its documentation
(``userspace-api/landlock``, ``userspace-api/seccomp_filter``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.worker.confinement.kernel import Missing
from harness.worker.confinement.landlock import TRUNCATION_VERSION, landlock_version, restrict_files
from harness.worker.confinement.rights import (
    become_nobody,
    drop_capabilities,
    is_root,
    no_new_privileges,
)
from harness.worker.confinement.seccomp import filter_calls
from harness.worker.limits import limit_files, limit_processes, limit_signals


class Confined(NamedTuple):
    """A layer: ``why`` it is missing, empty where it holds."""

    layer: str
    why: str


def confine(folder: Path, readable: Sequence[str], trusted: Sequence[int], on_gpu: bool) -> list[Confined]:
    """Confine this process and all that it will start.

    Args:
        folder: The worker's own folder, the only place where it may write.
        readable: Further files and folders that it may read and execute.
        trusted: Processes that it may not signal: the judge's, and the zygote's.
        on_gpu: Whether the GPU's driver must start here.

    Returns:
        Every layer, in the order in which they were put on.
    """
    found: list[Confined] = []
    of_root: list[tuple[str, Callable[[], None]]] = [
        ("user", lambda: become_nobody(folder, readable)),
        ("capabilities", lambda: drop_capabilities(folder, readable)),
    ]
    layers: list[tuple[str, Callable[[], None]]] = [
        ("no_new_privs", no_new_privileges),
        *(of_root if is_root() else []),
        # A bound on processes counts those of the user that this process is by now.
        ("limits", lambda: _limit_resources(_is_alone(found))),
        ("files", lambda: restrict_files(folder, readable, on_gpu)),
        (
            "system_calls",
            lambda: filter_calls(
                trusted,
                on_gpu,
                owns_files=not _is_alone(found),
                keeps_lengths=Confined("files", "") in found and landlock_version() >= TRUNCATION_VERSION,
            ),
        ),
    ]
    for name, put_on in layers:
        try:
            if sys.platform != "linux":
                raise Missing("needs Linux")
            put_on()
        except Missing as missing:
            found.append(Confined(name, str(missing)))
        else:
            found.append(Confined(name, ""))
    return found


def _is_alone(found: Sequence[Confined]) -> bool:
    """Tells whether the worker's user owns nothing but the worker's folder, and has no other process."""
    return Confined("user", "") in found


def _limit_resources(alone: bool) -> None:
    """Bounds single files, open files, pending signals and processes; core dumps are off."""
    limit_files()
    limit_signals()
    try:
        limit_processes(alone)
    except OSError as error:
        raise Missing(f"the machine's threads cannot be counted: {error.strerror}") from None
