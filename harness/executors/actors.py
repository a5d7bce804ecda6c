"""Ray actors that run on a cluster's nodes: one for each lane and one for each builder.

The actors' processes do not import torch. The processes that they start do.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from harness.compilation.cache import BuildCache
from harness.errors import HarnessError
from harness.executors.lane_handle import LaneProcess, opening_of
from harness.executors.payload import Payload, unpacked
from harness.executors.plan import Planned
from harness.executors.protocol import CandidateFinished, Failure, Opened, Opening, Overrun
from harness.executors.tools import tools_for
from harness.judge.evaluation.builder import Refused, build_ahead
from harness.judge.process.workers import Workers
from harness.system.processes import adopt_orphans, die_with_parent


class ActorSetup(NamedTuple):
    """The settings that every actor of a run shares.

    Attributes:
        device: ``cpu`` or ``cuda:0``, the one GPU that Ray gives an actor.
        home: ``HARNESS_HOME`` on every node.
        is_timed: Whether the lanes measure speed on a GPU.
    """

    device: str
    home: Path
    is_timed: bool


def _end_with_node() -> None:
    """Makes an actor's process end with its node's process. Ray may notice that late or never."""
    if os.getppid() != 1:
        die_with_parent(os.getppid())


class JudgingActor:
    """An actor that runs a lane's process on a node and relays its messages to the driver."""

    def __init__(self, place: ActorSetup):
        _end_with_node()
        self._cache = BuildCache(place.home / "builds")
        self._lane = LaneProcess(Opening(place.device, place.home, place.is_timed, os.getpid()))

    def opened(self) -> Opened | Failure:
        """Returns the lane's first message."""
        try:
            return opening_of(self._lane)
        except HarnessError as error:
            return Failure(error)

    def judge(self, parcel: Payload) -> Iterator[Any]:
        """Yields the lane's messages about a candidate as they arrive."""
        with unpacked(parcel, self._cache) as work:
            self._lane.send(work)
            said: Any = None
            while not isinstance(said, Planned | CandidateFinished | Failure | Overrun):
                try:
                    said = self._lane.receive()
                except HarnessError as error:
                    said = Failure(error)
                yield said

    def end(self) -> None:
        """Ends the lane and its workers."""
        self._lane.close()


class BuildingActor:
    """An actor that builds candidates on a node, each in a worker of its own."""

    def __init__(self, place: ActorSetup, capability: tuple[int, int] | None):
        _end_with_node()
        adopt_orphans()
        tools = tools_for(place.device, place.home)
        self._cache = BuildCache(place.home / "builds")
        self._workers = Workers.that_build(place.device, tools.libraries, capability)

    def opened(self) -> None:
        """Returns once the actor is ready."""

    def build(self, parcel: Payload) -> tuple[Refused, dict[str, bytes]]:
        """Builds a candidate; returns compiler refusals and new libraries by build key."""
        with unpacked(parcel, self._cache) as work:
            solution = work.job.candidate.solution
            refused = build_ahead(
                lambda: contextlib.closing(self._workers.take()),
                work.job.candidate,
                work.job.first_constants,
                self._cache,
                work.policy,
            )
            built = {key: path.read_bytes() for key, path in self._cache.libraries(solution.digest).items()}
        return refused, {key: data for key, data in built.items() if key not in parcel.libraries}

    def end(self) -> None:
        """Ends the process that the workers are forked from."""
        self._workers.close()
