"""Tells a machine on which nothing compiles from a candidate that does not."""

from __future__ import annotations

import contextlib

from harness.compilation.errors import names_own_text
from harness.errors import HarnessError
from harness.judge.evaluation.builder import IMPORTING
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.judge.process.time_limits import Clock, Limits
from harness.judge.process.workers import Workers
from harness.records.record import Status
from harness.system.scratch import scratch_folder
from harness.wire.commands import Load
from harness.wire.replies import Failed, Loaded

#: A solution whose build fails only if every build does.
TRIVIAL = '''
import torch
from torch.utils.cpp_extension import load_inline

load_inline(
    name="trivial",
    cpp_sources="",
    cuda_sources="""
__global__ void nothing() {}
extern "C" void run() { nothing<<<1, 1>>>(); }
""",
    is_python_module=False,
    no_implicit_headers=True,
)


class ModelNew(torch.nn.Module):
    pass
'''


def check_machine(stop: CandidateStopped, workers: Workers, limits: Limits) -> None:
    """Checks that the machine can build anything, after a build failed for no reason in the candidate's text.

    A trivial solution is built in a worker of its own. Once that has worked, the machine is trusted.

    Args:
        stop: How the candidate's build ended. Nothing is checked unless it is a ``BUILD_ERROR``.
        workers: The source of workers.
        limits: The seconds that the build may take.

    Raises:
        HarnessError: The trivial solution does not build, either. The message has the compiler's
            words.
    """
    if stop.status is not Status.BUILD_ERROR or workers.can_build or names_own_text(stop.message):
        return
    words = ""
    with scratch_folder("harness-trivial-") as folder, contextlib.closing(workers.take()) as worker:
        solution = folder / "trivial.py"
        solution.write_text(TRIVIAL, encoding="utf-8")
        worker.start()
        try:
            reply = worker.request(Load(str(solution), {}, "", {}), Clock(*limits), IMPORTING)
            workers.can_build = isinstance(reply, Loaded)
            words = reply.message if isinstance(reply, Failed) else ""
        except CandidateStopped as death:
            words = death.message
    if not workers.can_build:
        raise HarnessError(
            "nothing compiles on this machine, not even a trivial kernel; `doctor` says more. The compiler's words:\n"
            f"{words}"
        )
