"""What runs on a Ray cluster's nodes: an actor for each lane, and for each builder.

Their processes import no torch: those that they start do.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from harness.compilation.cache import BuildCache
from harness.errors import HarnessError
from harness.executors.lanes import LaneProcess, opening_of
from harness.executors.payload import Payload, unpacked
from harness.executors.plan import Planned
from harness.executors.protocol import CandidateFinished, Failure, Opened, Opening
from harness.executors.tools import tools_for
from harness.judge.evaluation.builder import Refused, build_ahead
from harness.judge.process.workers import Workers
from harness.system.processes import adopt_orphans, die_with_parent


class ActorSetup(NamedTuple):
    """What actors are to do their work on.

    Attributes:
        device: ``cpu`` or ``cuda:0``, the one GPU that Ray gives an actor.
        home: ``HARNESS_HOME`` on every node.
        is_timed: Whether speed is measured, on a GPU.
    """

    device: str
    home: Path
    is_timed: bool


def _end_with_node() -> None:
    """Have an actor's process end with its node's, which Ray itself may notice late, or not."""
    if os.getppid() != 1:
        die_with_parent(os.getppid())


class JudgingActor:
    """On a node: a lane's process, and its way to the driver."""

    def __init__(self, place: ActorSetup):
        _end_with_node()
        self._cache = BuildCache(place.home / "builds")
        self._lane = LaneProcess(Opening(place.device, place.home, place.is_timed, os.getpid()))

    def opened(self) -> Opened | Failure:
        """What the lane says first."""
        try:
            return opening_of(self._lane)
        except HarnessError as error:
            return Failure(error)

    def judge(self, parcel: Payload) -> Iterator[Any]:
        """What the lane says of a candidate, as it comes."""
        with unpacked(parcel, self._cache) as work:
            self._lane.send(work)
            said: Any = None
            while not isinstance(said, Planned | CandidateFinished | Failure):
                try:
                    said = self._lane.receive()
                except HarnessError as error:
                    said = Failure(error)
                yield said

    def end(self) -> None:
        """End the lane and its workers."""
        self._lane.close()


class BuildingActor:
    """On a node: a worker for each build."""

    def __init__(self, place: ActorSetup, capability: tuple[int, int] | None):
        _end_with_node()
        adopt_orphans()
        tools = tools_for(place.device, place.home)
        self._cache = BuildCache(place.home / "builds")
        self._workers = Workers.that_build(place.device, tools.libraries, capability)

    def opened(self) -> None:
        """Answers once it is ready."""

    def build(self, parcel: Payload) -> tuple[Refused, dict[str, bytes]]:
        """Build a candidate; what a compiler refused, and what came of it."""
        with unpacked(parcel, self._cache) as work:
            solution = work.job.candidate.solution
            with contextlib.closing(self._workers.take()) as worker:
                refused = build_ahead(worker, solution, self._cache, work.policy)
            built = {key: path.read_bytes() for key, path in self._cache.libraries(solution.digest).items()}
        return refused, {key: data for key, data in built.items() if key not in parcel.libraries}

    def end(self) -> None:
        """End what workers are forked of."""
        self._workers.close()
