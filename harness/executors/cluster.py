"""Lanes and builders on a Ray cluster, one actor for each.

Ray only carries messages. Each actor starts a harness process on its node, and that process
judges. It ends with its actor. The isolation between candidate and judge is the same as on one
machine (docs/security.md).
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from harness.compilation.cache import BuildCache
from harness.device import environment
from harness.errors import DeviceError, HarnessError, UsageError
from harness.executors.actors import ActorSetup, BuildingActor, JudgingActor
from harness.executors.lane_handle import LaneDied, LaneHandle, opening_of
from harness.executors.lanes import Lanes
from harness.executors.payload import Payload, keep, packed, readdressed
from harness.executors.plan import Job, Planned
from harness.executors.prebuild import Builders, PlannedWork, most_builders
from harness.executors.protocol import CandidateFinished, Cluster, Failure, Opened
from harness.judge.evaluation.blank_records import blank_record
from harness.judge.evaluation.builder import Refused
from harness.judge.policy import Policy
from harness.project.paths import PYTHON_OPTIONS, import_path
from harness.records.record import EvaluationRecord, Status
from harness.system.interrupts import shielded, unwinding
from harness.system.scratch import scratch_folder

#: Timeout in seconds for the cluster to place an actor and for the actor to become ready.
OPEN_LIMIT_S = 180.0
#: Seconds to wait for a new builder before lanes judge candidates without building ahead.
PLACE_LIMIT_S = 30.0
#: Seconds that judging a case may take on top of the candidate's own limits. A lane that is
#: silent for longer counts as lost.
SLACK_S = 600.0
#: Timeout in seconds for an actor to end the processes that it started.
END_LIMIT_S = 30.0


class ClusterLane:
    """The driver's handle for a lane on a node of the cluster.

    Args:
        ray: The Ray module.
        actor: The lane's actor.
        name: The lane's unique name.
        cache: The build cache on this machine.

    Attributes:
        device: The lane's name.
        work: The candidate that the lane judges; None while the lane is free or not ready yet.
    """

    def __init__(self, ray: ModuleType, actor: Any, name: str, cache: BuildCache):
        self.device = name
        self.work: PlannedWork | None = None
        self._ray, self._actor, self._cache = ray, actor, cache
        self._environment: dict[str, str] = {}
        self._orders: queue.SimpleQueue[Payload | list[Any] | None] = queue.SimpleQueue()
        self._heard, self._telling = Pipe(duplex=False)
        self._death = "its Ray actor was killed"
        self._thread = threading.Thread(target=self._relay, name=name, daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Returns a descriptor that is readable once the lane has sent a message or ended."""
        return self._heard.fileno()

    def send(self, work: PlannedWork) -> None:
        """Gives the lane a candidate to judge."""
        self.work = work
        try:
            self._orders.put(packed(work, self._cache))
        except HarnessError as error:
            candidate, policy = work.job.candidate, work.policy
            blanks = [blank_record(candidate, policy, self._environment, *case) for case in work.cases]
            failed = [replace(blank, status=Status.HARNESS_ERROR, message=str(error)) for blank in blanks]
            self._orders.put([*failed, CandidateFinished()] if work.is_planned else [Planned((), error=error)])

    def answer(self) -> None:
        """Does nothing: builds on other nodes do not disturb a candidate's timing."""

    def receive(self) -> Any:
        """Returns the lane's next message.

        Raises:
            LaneDied: The lane has ended without giving a reason.
            HarnessError: The lane has ended and gave this reason.
        """
        try:
            said = self._heard.recv()
        except (EOFError, OSError):
            raise LaneDied(self._death) from None
        if isinstance(said, Failure):
            raise said.error
        if isinstance(said, Opened):
            self._environment = said.environment
        if isinstance(said, EvaluationRecord) and self.work is not None:
            return readdressed(said, self.work.job.candidate)
        return said

    def end(self) -> None:
        """Tells the lane to end once it is free; ``close`` waits for a free lane."""
        self._orders.put(None)

    def close(self) -> None:
        """Ends the lane. If the lane is judging, ``close`` kills it without waiting."""
        self.end()
        if self.work is None:
            self._thread.join(END_LIMIT_S)
        self._ray.kill(self._actor)
        self._thread.join()
        self._heard.close()

    def _relay(self) -> None:
        """Passes on the actor's messages until the actor ends."""
        errors = self._ray.exceptions
        with self._telling, contextlib.suppress(BrokenPipeError):
            try:
                self._telling.send(self._ray.get(self._actor.opened.remote(), timeout=OPEN_LIMIT_S))
                while (order := self._orders.get()) is not None:
                    for said in self._said_of(order) if isinstance(order, Payload) else order:
                        self._telling.send(said)
                self._ray.get(self._actor.end.remote(), timeout=END_LIMIT_S)
            except (errors.GetTimeoutError, TimeoutError):
                self._death = "it did not report for too long"
            except errors.RayError as error:
                self._death = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"

    def _said_of(self, parcel: Payload) -> Iterator[Any]:
        """Yields the actor's messages about a candidate.

        Raises:
            TimeoutError: The actor is silent for longer than any candidate may take.
        """
        granted = parcel.work.policy.granted
        answers = self._actor.judge.remote(parcel)
        while True:
            ready, _ = self._ray.wait([answers], timeout=granted.run_s + granted.build_s + SLACK_S)
            if not ready:
                raise TimeoutError
            try:
                answer = next(answers)
            except StopIteration:
                return
            yield self._ray.get(answer)


class _Builder(NamedTuple):
    """A builder's actor, its pending ready signal, and the deadline for that signal."""

    actor: Any
    opened: Any
    placed_by: float


class ClusterBuilders(Builders):
    """A pool of builders on the cluster's nodes, each with a processor of its own.

    Args:
        ray: The Ray module.
        make: Makes a builder's actor.
        cache: The build cache on this machine.
        count: The number of builders.
    """

    def __init__(self, ray: ModuleType, make: Callable[[], Any], cache: BuildCache, count: int):
        super().__init__(cache, count)
        self._ray, self._make = ray, make
        self._actors: queue.SimpleQueue[_Builder] = queue.SimpleQueue()
        self._living: list[Any] = []
        self._is_closed = False
        for _ in range(count):
            self._actors.put(self._another())

    def stop(self) -> None:
        """Ends the actors."""
        self._is_closed = True
        ended = [actor.end.remote() for actor in self._living]
        if ended:
            self._ray.wait(ended, num_returns=len(ended), timeout=1.0)  # does not wait for a running build
        for actor in self._living:
            self._ray.kill(actor)

    def _build(self, job: Job, policy: Policy) -> Refused:
        try:
            parcel = packed(PlannedWork(job, policy, (), ()), self._cache)
        except HarnessError:  # the lane meets the same error and reports it
            return {}
        builder = self._actors.get()
        try:
            # Ray may never place the builder if others use all processors. The lane builds then.
            if not self._ray.wait([builder.opened], timeout=max(0.0, builder.placed_by - time.monotonic()))[0]:
                return {}
            limit = sum(policy.granted) + OPEN_LIMIT_S
            refused, libraries = self._ray.get(builder.actor.build.remote(parcel), timeout=limit)
        except self._ray.exceptions.RayError:  # the lane builds then
            if not self._is_closed:
                self._ray.kill(builder.actor)
                builder = self._another()
            return {}
        finally:
            self._actors.put(builder)
        # If the cache cannot be written, the lane builds again.
        with contextlib.suppress(OSError), scratch_folder("harness-parcel-") as folder:
            keep(libraries, job.candidate.solution.digest, self._cache, folder / "libraries")
        found: Refused = refused
        return found

    def _another(self) -> _Builder:
        actor = self._make()
        self._living.append(actor)
        return _Builder(actor, actor.opened.remote(), time.monotonic() + PLACE_LIMIT_S)


@contextlib.contextmanager
def lanes_on_cluster(cluster: Cluster, wanted: str, home: Path, is_timed: bool) -> Iterator[Lanes]:
    """Opens lanes on a Ray cluster: one on each GPU, or the requested number on the CPU.

    Args:
        cluster: The cluster.
        wanted: ``auto``, ``cpu`` or ``cuda``.
        home: ``HARNESS_HOME`` on every node.
        is_timed: Whether the lanes measure speed on a GPU.

    Raises:
        UsageError: Ray is not installed, Ray cannot join the cluster, or ``wanted`` names single
            GPUs.
        DeviceError: The cluster has no GPU.
        HarnessError: A lane does not start, or a node runs another version of the harness.
    """
    if wanted not in ("auto", "cpu", "cuda", "all"):
        raise UsageError(f"--device {wanted}: GPUs of a cluster have no numbers; use cuda for all of them, or cpu")
    with contextlib.ExitStack() as stack, unwinding():
        if wanted == "cpu" and _is_own(cluster.address):
            stack.enter_context(_runtime_on_its_way(home))
        ray = stack.enter_context(_joined(cluster.address))
        resources = ray.cluster_resources()
        gpus, processors = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
        if wanted in ("cuda", "all") and not gpus:
            raise DeviceError(f"--device {wanted}: the cluster has no GPU; use cpu")
        is_cpu = wanted == "cpu" or not gpus
        count = (cluster.lanes or max(1, processors // 2)) if is_cpu else gpus
        place = ActorSetup("cpu" if is_cpu else "cuda:0", home, is_timed)
        cache = BuildCache(home / "builds")
        judging = ray.remote(JudgingActor).options(
            num_cpus=1, num_gpus=0 if is_cpu else 1, max_restarts=0, scheduling_strategy="SPREAD"
        )

        def start(name: str) -> ClusterLane:
            return ClusterLane(ray, judging.remote(place), name, cache)

        started = []
        for number in range(count):
            started.append(start(f"lane {number + 1}"))
            stack.callback(started[-1].close)
        said = [opening_of(lane) for lane in started]
        _check_versions(opened.environment for opened in said)
        left_over = processors - count  # if lanes take them all, one builder shares with them
        building = ray.remote(BuildingActor).options(
            num_cpus=1 if left_over > 0 else 0, max_restarts=0, scheduling_strategy="SPREAD"
        )

        def builders(most: int) -> Builders:
            left = max(1, min(most, left_over))
            return ClusterBuilders(ray, lambda: building.remote(place, said[0].capability), cache, left)

        handles: list[LaneHandle] = [*started]
        kind = place.device.partition(":")[0]
        lanes = Lanes(kind, said[0].environment, cache, builders, start, free=handles, most_builders=most_builders())
        stack.enter_context(contextlib.closing(lanes))
        yield lanes


def _is_own(address: str | None) -> bool:
    """Returns whether the harness starts a cluster of its own for this address."""
    return address is None and "RAY_ADDRESS" not in os.environ


@contextlib.contextmanager
def _runtime_on_its_way(home: Path) -> Iterator[None]:
    """Builds the emulator's runtime in the background, because lanes on this machine need it first.

    Ignores a failed build: the lanes meet the same failure and report it.
    """
    program = "import sys, pathlib, harness.executors.tools as t; t.tools_for('cpu', pathlib.Path(sys.argv[1]))"
    process = subprocess.Popen(
        [sys.executable, *PYTHON_OPTIONS, "-c", program, str(home)],
        env={**os.environ, "PYTHONPATH": import_path()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def _joined(address: str | None) -> Iterator[Any]:
    """Connects Ray to a cluster for the block; starts a cluster if nothing names one.

    Yields:
        The Ray module.

    Raises:
        UsageError: Ray is not installed, or there is no cluster at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise UsageError('--executor ray: Ray is not installed: pip install "kernel-harness[ray]"') from None
    own: dict[str, Any] = {}
    if _is_own(address):
        variables = {"PYTHONPATH": import_path()}
        own = {"address": "local", "include_dashboard": False, "runtime_env": {"env_vars": variables}}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        ray.init(**({"address": address} | own), log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(f"--executor ray: cannot join a cluster: {error}") from None
    for number, handler in handlers.items():
        signal.signal(number, handler)  # Ray's own handler would end the program without cleanup
    try:
        yield ray
    finally:
        with shielded():
            ray.shutdown()


def _check_versions(environments: Iterable[dict[str, str]]) -> None:
    """Checks that all nodes run this machine's version of the harness.

    Raises:
        HarnessError: A node runs another version.
    """
    own = environment.code_digest()
    for one in environments:
        if one["harness_code"] != own:
            raise HarnessError(
                "a node of the cluster has another version of the harness, so its verdicts are not "
                f"comparable: install the same version on all nodes ({own[:12]} here, "
                f"{one['harness_code'][:12]} there)"
            )
