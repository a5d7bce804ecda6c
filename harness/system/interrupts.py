"""Turns Ctrl-C, SIGTERM and SIGHUP into an exception, delayed while a shielded block runs.

The exception interrupts the program anywhere, even in an endless loop of a problem. While it
unwinds, the program ignores further signals. An impatient second Ctrl-C therefore cannot prevent
the removal of workers and folders.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

#: The signals that end the program.
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # fmt: skip


class Interrupted(KeyboardInterrupt):
    """The user or the system wants the program to end.

    Attributes:
        exit_code: Exit code of the program: 128 plus the signal's number, as in shells (130 for
            Ctrl-C).
    """

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@dataclass
class _State:
    """The state of signal handling, one for the process as signals are.

    Attributes:
        shields: Number of running ``shielded`` blocks.
        pending: Signal that arrived during such a block.
    """

    shields: int = 0
    pending: int | None = None


_state = _State()


def reset_inherited() -> None:
    """Resets signals to their defaults and unblocks them.

    Processes that the harness starts and ends call it, because their parent may have changed
    signals. If SIGCHLD stays ignored, they cannot wait for their own children. If SIGTERM stays
    ignored or blocked, the harness cannot end them.
    """
    if hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in SIGNALS:
        is_interrupt = number == signal.SIGINT  # Python has a handler of its own for it
        signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, ())


def install() -> None:
    """Makes the signals raise ``Interrupted`` in the main thread.

    A signal that the process ignored at the start stays ignored.
    """
    if hasattr(signal, "SIGCHLD") and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # otherwise it could not wait for its children
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)


def ignore_further() -> None:
    """Makes the process ignore the signals, because it is about to end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """Ignores further signals once an interrupt leaves this block.

    The code around the block can then clean up without another interrupt.
    """
    try:
        yield
    except KeyboardInterrupt:
        ignore_further()
        raise


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Delays an interrupt to the end of a short block, so that the block runs completely.

    Only the main thread receives interrupts, so other threads run the block as it is.
    """
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
