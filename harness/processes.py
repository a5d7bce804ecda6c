"""What both the judge and the worker ask of the kernel about processes (Linux)."""

from __future__ import annotations

import ctypes
import sys

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent has ended, wherever they went; nothing but on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def adopts_orphans() -> bool:
    """Whether this process does."""
    answer = ctypes.c_int(0)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)
