"""Ctrl-C, SIGTERM and SIGHUP: an exception at once, but never in the middle of what must not be cut in two.

The exception is raised wherever the program happens to be, a problem's own endless loop included. While it unwinds,
further signals are ignored, so that an impatient second Ctrl-C does not keep workers and folders from being removed.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # fmt: skip


class Interrupted(KeyboardInterrupt):
    """The user, or the system, wants the program to end.

    Attributes:
        exit_code: What the program ends with: 128 and the signal's number, as shells have it (130 for Ctrl-C).
    """

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@dataclass
class _State:
    """Signals are the process's: so is this.

    Attributes:
        shields: How many ``shielded`` blocks are being run.
        pending: The signal that arrived meanwhile.
    """

    shields: int = 0
    pending: int | None = None


_state = _State()


def reset_inherited() -> None:
    """Puts signals back to their defaults, unblocked: a program that started this process may have changed them.

    For processes that the harness starts and ends itself. A program that ignores SIGCHLD would otherwise keep them from
    waiting for their own children, and one that ignores or blocks SIGTERM would keep them from being ended.
    """
    if hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, ())


def install() -> None:
    """Have the signals raise ``Interrupted`` in the main thread; one that was ignored at the start stays ignored."""
    if hasattr(signal, "SIGCHLD") and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # children could not be waited for
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)


def ignore_further() -> None:
    """Have the signals do nothing any more: the program is about to end."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """Once an interrupt leaves this block, ignore further ones: what is around it tidies up undisturbed."""
    try:
        yield
    except KeyboardInterrupt:
        ignore_further()
        raise


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """A short block that is run whole: an interrupt is raised at its end (other threads than the main one see none)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _state.shields += 1
    try:
        yield
    finally:
        _state.shields -= 1
        if _state.pending is not None and not _state.shields:
            number, _state.pending = _state.pending, None
            raise Interrupted(number)


def _on_signal(number: int, _: FrameType | None) -> None:
    if _state.shields:
        _state.pending = number
        return
    raise Interrupted(number)
