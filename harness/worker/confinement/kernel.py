"""Calls the kernel through libc, and names what a machine lacks (Linux)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path


class Missing(Exception):
    """The error for a layer that this machine cannot provide; the message says why."""


def libc() -> ctypes.CDLL:
    """Returns the C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def checked(what: str, result: int) -> int:
    """Checks and returns the result of a libc call.

    Raises:
        Missing: The result is negative.
    """
    if result < 0:
        raise Missing(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def gpu_devices() -> Iterator[str]:
    """Yields the GPU driver's device files, and the folder of those that GPU partitions need."""
    for path in sorted(Path("/dev").glob("nvidia*")):
        yield str(path)
