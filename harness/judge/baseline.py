"""Eager PyTorch as a candidate's rival: the problem's own model in a second, trusted worker."""

from __future__ import annotations

from typing import Any

from harness.errors import HarnessError
from harness.judge.handle import Clock, WorkerHandle
from harness.judge.series import Side
from harness.problems import Problem
from harness.wire.messages import Command, Construct, Forward, LoadReference, Release, Reply
from harness.wire.values import encode_plain

LIMIT_S = 300.0


class Baseline:
    """A worker that runs references; one serves a whole batch.

    Args:
        worker: A fresh worker; closed with this object.
    """

    def __init__(self, worker: WorkerHandle):
        self._worker = worker
        self._started = False

    def side(
        self, problem: Problem, constants: dict[str, Any], construct: Construct, descriptor: int, forward: Forward
    ) -> Side:
        """Make the problem's model under a case and give it a draw's state and inputs.

        Raises:
            HarnessError: The reference does not run there.
        """
        if not self._started:
            self._worker.start()
            self._started = True
        clock = Clock(LIMIT_S, LIMIT_S)
        self._ask(LoadReference(str(problem.path.resolve()), encode_plain(constants)), clock)
        self._ask(construct, clock, descriptor)
        self._ask(forward, clock)
        return Side(self._worker, clock)

    def release(self) -> None:
        """Give its memory back."""
        if self._started:
            self._ask(Release(), Clock(LIMIT_S, LIMIT_S))

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def _ask(self, command: Command, clock: Clock, descriptor: int | None = None) -> Reply:
        reply: Any = self._worker.request(command, clock, "running the baseline", descriptor)
        message = getattr(reply, "message", None)
        if message is not None:
            raise HarnessError(f"the eager baseline failed ({type(command).__name__}): {message}")
        checked: Reply = reply
        return checked
