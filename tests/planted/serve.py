"""Runs the planted kernels for the tests, each in its own forked process, because a fault ends the device's use.

Arguments are the folder of the emulator's libraries and the library of ``copies.cpp``. Every line of the input is a
request, an object with ``library``, ``arch``, ``order`` and ``poison``; every line of the output an answer, an object
with ``reports``, ``launches`` and ``digest``, or with ``died``.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

from harness.emulator.session import EmulatorSession, Fill
from harness.emulator.toolchain import build_runtime

PATIENCE_S = 60.0  # a run takes well under a second; one that never ends must not hold up the tests


def run(session: EmulatorSession, copies: ctypes.CDLL, request: dict[str, Any]) -> dict[str, Any]:
    """Loads a library and calls its ``run()``, checked."""
    session.set_architecture(request["arch"])
    is_exhaustive = request["order"] == "exhaustive"
    session.set_thread_order("forward" if is_exhaustive else request["order"], 1)
    session.set_exhaustive(is_exhaustive)
    session.set_checking(True, Fill(*request["fill"]))
    ctypes.CDLL(request["library"]).run()
    return {
        "reports": session.take_reports(),
        "launches": session.take_launches(),
        "digest": copies.digest_of_copies(),
    }


def answer(session: EmulatorSession, copies: ctypes.CDLL, request: dict[str, Any]) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as told:
            told.write(json.dumps(run(session, copies, request)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        if not select.select([told], [], [], PATIENCE_S)[0]:
            os.kill(child, signal.SIGKILL)
        text = told.read()
    _, status = os.waitpid(child, 0)
    return text or json.dumps({"died": os.waitstatus_to_exitcode(status)})


def main() -> None:
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")
    libraries = build_runtime(Path(sys.argv[1]))
    # Before the emulator's, whose cudaMemcpy it takes the place of.
    copies = ctypes.CDLL(sys.argv[2], mode=ctypes.RTLD_GLOBAL)
    session = EmulatorSession(libraries)
    copies.digest_of_copies.restype = ctypes.c_uint64
    copies.use_copy.argtypes = [ctypes.c_void_p]
    copies.use_copy(ctypes.cast(ctypes.CDLL(str(libraries.core)).cuemu_cudaMemcpy, ctypes.c_void_p))
    for line in sys.stdin:
        print(answer(session, copies, json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
