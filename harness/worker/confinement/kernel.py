"""Calls to the kernel through libc, and what a machine does not have (Linux)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path


class Missing(Exception):
    """A layer cannot be had here; the message says why."""


def libc() -> ctypes.CDLL:
    """The C library that this process runs on."""
    return ctypes.CDLL(None, use_errno=True)


def checked(what: str, result: int) -> int:
    """The result of a libc call.

    Raises:
        Missing: It is negative.
    """
    if result < 0:
        raise Missing(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def gpu_devices() -> Iterator[str]:
    """The GPU driver's device files, and the folder of those that partitions of a GPU need."""
    for path in sorted(Path("/dev").glob("nvidia*")):
        yield str(path)
