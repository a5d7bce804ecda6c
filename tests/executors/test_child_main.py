"""The main function of lanes' and services' processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.errors import EXIT_INTERRUPTED

#: Serves as said, with SIGTERM arriving again and again until the process ignores it.
PROGRAM = """
import os, signal, sys
from harness.errors import HarnessError
from harness.executors import child_main
from harness.system import interrupts

ignore = interrupts.ignore_further
interrupts.ignore_further = lambda: (os.kill(os.getpid(), signal.SIGTERM) if arrivals.pop() else None, ignore())
arrivals = [False, True]

def serve():
    {serve}

child_main.leave(child_main.run(serve, lambda error: print("reported", error, file=sys.stderr, flush=True)))
"""


@pytest.mark.parametrize(
    "serve",
    ["pass", "os.kill(os.getpid(), signal.SIGTERM)", "raise HarnessError('x')", "raise BrokenPipeError"],
    ids=["served", "interrupted", "failed", "parent gone"],
)
def test_a_signal_while_the_process_ends_leaves_no_traceback(serve: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(serve=serve)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == EXIT_INTERRUPTED
    assert ran.stderr in ("", "reported x\n")
