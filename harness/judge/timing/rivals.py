"""Runs the problem's own model as a rival (eager, compiled, ...) in a second, trusted worker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from harness.judge.process.candidate_stopped import CandidateStopped
from harness.judge.process.time_limits import Clock
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.process.workers import Workers
from harness.judge.timing.paired_timing import BaselineError, Side, asked
from harness.project.problems import Problem
from harness.records.baselines import BASELINES, EAGER
from harness.system.text import shortened
from harness.wire.commands import (
    Backward,
    Command,
    Construct,
    DropSlots,
    Forward,
    LoadReference,
    Release,
    TimeCalls,
    Trace,
    Vary,
)
from harness.wire.replies import Constructed, Failed, Loaded, Outputs, Released, Timed, Traced, Varied

LIMIT_S = 300.0
#: Seconds for compiling, with every kernel tuned.
COMPILE_LIMIT_S = 900.0
MAX_FAILURE_CHARACTERS = 500
#: Measures the overhead of timing itself; no user's baseline has this name.
EMPTY = Vary("empty launch", compile_mode="", allows_tf32=False, is_empty=True)

ReplyT = TypeVar("ReplyT")

__all__ = ["Baseline", "BaselineError", "Rivals", "Scene"]


@dataclass(frozen=True)
class Scene:
    """The case that all rivals run.

    Attributes:
        problem: The problem.
        constants: The case's constants, encoded.
        construct: The command that makes an instance.
        descriptor: File descriptor of the arena.
        forward: The command with a draw's state and inputs.
        backward: The command to differentiate; None where only outputs are judged.
    """

    problem: Problem
    constants: str
    construct: Construct
    descriptor: int
    forward: Forward
    backward: Backward | None


@dataclass
class Rivals:
    """The rivals that are ready, and facts about each for the record.

    Attributes:
        sides: Sides that are ready to be timed, by name.
        told: Facts for the record beside the times: ``prepare_s``, ``note``, ``failure``.
    """

    sides: dict[str, Side] = field(default_factory=dict)
    told: dict[str, dict[str, object]] = field(default_factory=dict)


class Baseline:
    """A worker that runs baselines; it serves a whole batch and is replaced when it fails.

    Args:
        workers: The source of its worker.
    """

    def __init__(self, workers: Workers):
        self._workers = workers
        self._worker: WorkerHandle | None = None
        self._failures: dict[tuple[str, str, str], str] = {}
        self._asked = EAGER
        self._profiled: Baseline | None = None

    def rivals(self, scene: Scene, names: Sequence[str]) -> Rivals:
        """Prepare baselines: make the problem's model in several ways, each with a draw's inputs.

        Baselines that compile do so here, and run once in either direction. One that fails is left
        out.

        Args:
            scene: The case that they run.
            names: Names from ``BASELINES``.

        Raises:
            BaselineError: The reference does not run even eagerly.
        """
        found = Rivals(told={name: {} for name in names})
        self._begin(scene)
        # Baselines that replay come first. If one fails, its worker ends, and the baselines that
        # are ready end with it.
        for name in sorted(names, key=lambda name: (name != EAGER, not BASELINES[name].replays)):
            if known := self.failure(scene, name):
                found.told[name] = {"failure": known}
                continue
            try:
                found.sides[name] = self._prepared(name, scene, found.told[name])
            except BaselineError as error:
                if name == EAGER:
                    raise BaselineError(EAGER, str(error)) from None
                self.fail(found, scene, name, error)
                if self._worker is None:
                    self._begin(scene)
                    found.sides = {other: self._prepared(other, scene, found.told[other]) for other in found.sides}
        found.sides = {name: found.sides[name] for name in names if name in found.sides}
        # Release what compiling and tuning left.
        self._ask(DropSlots(), Clock(LIMIT_S, LIMIT_S), Released)
        return found

    def fail(self, found: Rivals, scene: Scene, name: str, error: BaselineError) -> None:
        """Leave a baseline out, with the reason, also for later candidates."""
        found.sides.pop(name, None)
        found.told[name] = {"failure": self.remember(scene, name, error)}

    def remember(self, scene: Scene, name: str, error: BaselineError) -> str:
        """Record that a baseline is not to be tried again; return the reason, shortened.

        A failed capture leaves its process unfit for another: torch's allocator and stream stay in
        the middle of it.
        """
        words = shortened(str(error).partition("\n")[0], MAX_FAILURE_CHARACTERS)
        self._failures[self._key(scene, name)] = words
        if BASELINES[name].replays:
            self.close()
        return words

    def failure(self, scene: Scene, name: str) -> str:
        """Return why a baseline is not tried; empty where it may be."""
        return self._failures.get(self._key(scene, name), "")

    def empty(self, scene: Scene) -> Side:
        """Make a side whose call launches one kernel that does nothing."""
        assert self._worker is not None
        clock = Clock(LIMIT_S, LIMIT_S)
        self._ask(EMPTY, clock, Varied)
        self._ask(replace(scene.forward, state=()), clock, Outputs)
        return Side(self._worker, clock, EMPTY.name, EMPTY)

    def traced(self, scene: Scene) -> Traced:
        """Return the kernels of eager's forward and backward.

        A separate worker runs the profiler, since a profiled process is slower afterwards.

        Raises:
            BaselineError: Eager does not run.
        """
        if self._profiled is None:
            self._profiled = Baseline(self._workers)
        side = self._profiled.rivals(scene, (EAGER,)).sides[EAGER]
        try:
            return asked(side, Trace(scene.backward), Traced)
        finally:
            self._profiled.release()

    def release(self) -> None:
        """Release the worker's memory; end a worker that cannot."""
        if self._worker is None:
            return
        try:
            self._ask(Release(), Clock(LIMIT_S, LIMIT_S), Released)
        except BaselineError:
            self.close()

    def close(self) -> None:
        """End the workers."""
        if self._profiled is not None:
            self._profiled.close()
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    @staticmethod
    def _key(scene: Scene, name: str) -> tuple[str, str, str]:
        return scene.problem.digest, scene.constants, name

    def _begin(self, scene: Scene) -> None:
        self._asked = EAGER
        if self._worker is None:
            self._worker = self._workers.take()
            self._worker.start()
        clock = Clock(LIMIT_S, LIMIT_S)
        self._ask(LoadReference(str(scene.problem.path.resolve()), scene.constants), clock, Loaded)
        self._ask(scene.construct, clock, Constructed, scene.descriptor)

    def _prepared(self, name: str, scene: Scene, told: dict[str, object]) -> Side:
        """Prepare a baseline and run it once; record facts about it in ``told``.

        Raises:
            BaselineError: It does not run.
        """
        assert self._worker is not None
        variant, self._asked = BASELINES[name], name
        vary = Vary(name, variant.compile_mode, variant.allows_tf32, False)
        clock = Clock(COMPILE_LIMIT_S if variant.compile_mode else LIMIT_S, LIMIT_S)
        started = time.monotonic()
        was_there = self._ask(vary, clock, Varied).was_known
        self._ask(scene.forward, clock, Outputs)
        side = Side(self._worker, clock, name, vary, is_replayed=variant.replays)
        for backward in dict.fromkeys((None, scene.backward)) if variant.compile_mode or variant.replays else ():
            self._ask(TimeCalls(backward, 0, side.is_replayed), clock, Timed)
        if variant.compile_mode:
            compiled = self._ask(vary, clock, Varied)
            if not was_there:
                told["prepare_s"] = time.monotonic() - started
            notes = [f"graph break: {reason}" for reason in compiled.graph_breaks]
            if not compiled.frames:
                notes.append("nothing was compiled: it runs eagerly")
            if notes:
                told["note"] = "; ".join(notes)
        clock.run_s = 0.0  # Preparation does not count against the time for timing.
        return side

    def _ask(
        self,
        command: Command,
        clock: Clock,
        expected: type[ReplyT],
        descriptor: int | None = None,
    ) -> ReplyT:
        """Return the worker's reply to a command.

        Raises:
            BaselineError: The worker failed. One that did not answer is closed.
        """
        assert self._worker is not None
        try:
            reply = self._worker.request(command, clock, "running the baseline", descriptor)
        except CandidateStopped as stop:
            self.close()
            raise BaselineError(self._asked, stop.message) from None
        if isinstance(reply, Failed) or not isinstance(reply, expected):
            words = (
                reply.message if isinstance(reply, Failed) else f"the worker sent an unexpected {type(reply).__name__}"
            )
            raise BaselineError(self._asked, words)
        return reply
