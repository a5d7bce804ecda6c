"""Eager PyTorch as a candidate's rival: the problem's own model in a second, trusted worker."""

from __future__ import annotations

from harness.judge.handle import CandidateStopped, Clock, WorkerHandle, Workers
from harness.judge.series import BaselineError, Side
from harness.problems import Problem
from harness.wire.messages import Command, Construct, Failed, Forward, LoadReference, Release

LIMIT_S = 300.0

__all__ = ["Baseline", "BaselineError"]


class Baseline:
    """A worker that runs references; one serves a whole batch, and a fresh one follows where it failed.

    Args:
        workers: Where its worker comes from.
    """

    def __init__(self, workers: Workers):
        self._workers = workers
        self._worker: WorkerHandle | None = None

    def side(self, problem: Problem, constants: str, construct: Construct, descriptor: int, forward: Forward) -> Side:
        """Make the problem's model under a case and give it a draw's state and inputs.

        Args:
            problem: The problem.
            constants: The case's constants, encoded.
            construct: What makes the instance.
            descriptor: The arena's.
            forward: The draw.

        Raises:
            BaselineError: The reference does not run there.
        """
        if self._worker is None:
            self._worker = self._workers.take()
            self._worker.start()
        clock = Clock(LIMIT_S, LIMIT_S)
        self._ask(LoadReference(str(problem.path.resolve()), constants), clock)
        self._ask(construct, clock, descriptor)
        self._ask(forward, clock)
        return Side(self._worker, clock, is_candidate=False)

    def release(self) -> None:
        """Give its memory back; a worker that cannot is ended."""
        if self._worker is None:
            return
        try:
            self._ask(Release(), Clock(LIMIT_S, LIMIT_S))
        except BaselineError:
            self.close()

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _ask(self, command: Command, clock: Clock, descriptor: int | None = None) -> None:
        assert self._worker is not None
        try:
            reply = self._worker.request(command, clock, "running the baseline", descriptor)
        except CandidateStopped as stop:
            raise BaselineError(f"eager PyTorch: {stop.message}") from None
        if isinstance(reply, Failed):
            raise BaselineError(f"eager PyTorch: {reply.message}")
