"""Reserves stdout for results, whatever the code of problems prints in this process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def printing_to_stderr() -> Iterator[None]:
    """Redirects ``print`` to stderr for the block.

    It uses a stream of its own, because the code in the block may close what it takes for stdout.
    """
    before = sys.stdout
    sys.stdout = _text(_copy_or_nothing(2), closefd=True)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError, OSError):  # it may be closed, or nobody may be reading it
            sys.stdout.close()
        sys.stdout = before


@contextlib.contextmanager
def results_alone() -> Iterator[TextIO]:
    """Reserves the program's stdout for the stream that it yields; all other output goes to stderr.

    This covers ``print``, C and C++ code, and processes started in the block, because descriptor 1
    itself changes.
    """
    if sys.stdout is not None:  # None if the program was started without one
        sys.stdout.flush()
    kept = _copy_or_nothing(1)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, kept)
        results = stack.enter_context(_text(kept, closefd=False))
        elsewhere = _copy_or_nothing(2)
        os.dup2(elsewhere, 1)
        os.close(elsewhere)
        stack.callback(os.dup2, kept, 1)
        stack.callback(_flush_c)
        stack.enter_context(printing_to_stderr())
        yield results


def _text(descriptor: int, closefd: bool) -> TextIO:
    return open(descriptor, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=closefd)


def _copy_or_nothing(descriptor: int) -> int:
    try:
        return os.dup(descriptor)
    except OSError:  # the program was started without one
        return os.open(os.devnull, os.O_WRONLY)


def _flush_c() -> None:
    """Flushes what C code has printed while descriptor 1 still points to stderr."""
    ctypes.CDLL(None).fflush(None)


def open_descriptors() -> None:
    """Opens ``/dev/null`` for each of the descriptors 0 to 2 that is closed.

    Otherwise the next file to be opened would get one of these, and a child would take it for a standard stream.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it takes the lowest free descriptor
