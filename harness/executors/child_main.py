"""The main function that the processes of lanes and services share."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from harness.errors import EXIT_INTERRUPTED, HarnessError
from harness.judge.process.leftovers import end_descendants
from harness.system import interrupts


def run(serve: Callable[[], None], report: Callable[[HarnessError], None]) -> int:
    """Serves, ends all processes that a problem has started, and returns the exit code.

    SIGTERM ends the service. Ctrl-C is ignored: the parent handles it and then sends SIGTERM.

    Args:
        serve: Returns once the parent has closed its end, or raises.
        report: Sends the parent an error that ``serve`` raised.
    """
    interrupts.reset_inherited()
    try:
        try:
            interrupts.install()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            return _served(serve, report)
        finally:
            interrupts.ignore_further()
    except KeyboardInterrupt:  # perhaps before ``ignore_further`` had an effect
        interrupts.ignore_further()
        return EXIT_INTERRUPTED
    finally:
        end_descendants()


def _served(serve: Callable[[], None], report: Callable[[HarnessError], None]) -> int:
    try:
        try:
            serve()
        except HarnessError as error:
            report(error)
            return error.exit_code
    except (BrokenPipeError, ConnectionResetError):  # the parent has gone
        pass
    return 0


def leave(code: int) -> NoReturn:
    """Ends this process without waiting for threads that a problem's code left running."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)
