"""Paired, interleaved timing of a candidate and of its rivals: the candidate in a worker of its own, they in another.

For each round the judge draws fresh inputs, and asks all sides in random order, the L2 cache flushed before each. Times
are the workers' CUDA events around one call. They are claims: the judge's own clock around the message bounds each from
above, and ``judge.loops`` bounds them from below.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from harness.baselines import BASELINES, EAGER
from harness.judge.handle import CandidateStopped, Clock, WorkerHandle
from harness.judge.trial import stop_for
from harness.records import Status
from harness.timing.statistics import Interval, Latency, latency, median_interval, paired_ratios
from harness.wire.messages import Backward, Command, Time, Timed, Varied, Vary

CANDIDATE = "candidate"
WARM_UP_ROUNDS = 2
MIN_ROUNDS = 10
MAX_ROUNDS = 50
#: Seconds of a series for each side.
BUDGET_S = 0.4
#: A series is long enough when the interval of its median ratio reaches no further than this share of it either way.
PRECISION = 0.005

ReplyT = TypeVar("ReplyT")


class BaselineError(Exception):
    """A baseline failed; the candidate's verdict stands.

    Attributes:
        name: Which one.
    """

    def __init__(self, name: str, message: str):
        super().__init__(message)
        self.name = name

    @property
    def words(self) -> str:
        """What to tell the user."""
        return f"{BASELINES[self.name].meaning if self.name in BASELINES else self.name}: {self}"


@dataclass
class Side:
    """One of those that are timed.

    Attributes:
        worker: Its worker, ready to be timed.
        clock: The seconds it may still use.
        name: ``candidate``, or the baseline's name.
        vary: What makes the worker run this side, where it can run several.
        is_queued: Whether launching is kept out of its times (see ``wire.messages.Time``).
        is_replayed: Whether a CUDA graph is replayed.
    """

    worker: WorkerHandle
    clock: Clock
    name: str = CANDIDATE
    vary: Vary | None = None
    is_queued: bool = False
    is_replayed: bool = False

    @property
    def is_candidate(self) -> bool:
        """Whether its failures are the candidate's."""
        return self.name == CANDIDATE

    def take_up(self) -> None:
        """Have its worker run this side from now on.

        Raises:
            BaselineError: It cannot.
        """
        if self.vary is not None:
            asked(self, self.vary, Varied)


@dataclass(frozen=True)
class Series:
    """A finished series in one direction.

    Attributes:
        latencies: By side, the candidate's among them; all on the same inputs.
        speedups: By baseline: median of the paired ratios, baseline over candidate, with its interval.
    """

    latencies: dict[str, Latency]
    speedups: dict[str, Interval]

    @property
    def candidate(self) -> Latency:
        """The candidate's latency."""
        return self.latencies[CANDIDATE]

    @property
    def eager(self) -> Latency:
        """Eager's latency."""
        return self.latencies[EAGER]


def flush_l2(device: torch.device, cache: dict[int, torch.Tensor]) -> None:
    """Write twice the L2's size, so that nothing a candidate left there is found, and wait; nothing on the CPU."""
    if device.type == "cpu":
        return
    index = device.index or 0
    if index not in cache:
        size = int(torch.cuda.get_device_properties(device).L2_cache_size)
        cache[index] = torch.empty(2 * size, dtype=torch.uint8, device=device)
    cache[index].zero_()
    torch.cuda.synchronize(device)


def measure(
    sides: Sequence[tuple[Side, Backward | None]],
    renew: Callable[[int], Callable[[], object]],
    device: torch.device,
    choose: random.Random,
    between: Callable[[], object],
    rounds: int = MAX_ROUNDS,
) -> Series:
    """Time all sides in rounds, until the ratios are known well enough or the budget of rounds or seconds is spent.

    Args:
        sides: The candidate and its rivals, and what each differentiates; None for a forward.
        renew: Draws what the round of this number is given; calling its result writes that, for one side.
        device: The device, whose L2 cache is flushed.
        choose: Decides who goes first.
        between: Called after each round.
        rounds: How many at most.

    Raises:
        CandidateStopped: The candidate failed, or claims more time than the judge saw pass.
        BaselineError: A baseline did.
    """
    buffers: dict[int, torch.Tensor] = {}
    samples: dict[str, list[float]] = {side.name: [] for side, _ in sides}
    windows: dict[str, list[float]] = {side.name: [] for side, _ in sides}
    order = list(sides)
    workers = {id(side.worker): side.worker for side, _ in sides}
    started = time.monotonic()
    for number in range(-WARM_UP_ROUNDS, rounds):
        if number == 0:
            started = time.monotonic()
        is_over = time.monotonic() - started > BUDGET_S * len(sides)
        if number >= MIN_ROUNDS and (is_over or _is_settled(samples)):
            break
        write = renew(number)
        choose.shuffle(order)
        for side, backward in order:
            side.take_up()
            write()
            flush_l2(device, buffers)
            with contextlib.ExitStack() as others:  # whoever is not timed is stopped
                for worker in workers.values():
                    if worker is not side.worker:
                        worker.pause()
                        others.callback(worker.resume)
                milliseconds, window = claimed(side, backward)
            if number >= 0:
                samples[side.name].append(milliseconds)
                windows[side.name].append(window)
        between()
    found = {name: latency(samples[name], windows[name]) for name in samples}
    return Series(found, _ratios(samples))


def _ratios(samples: dict[str, list[float]]) -> dict[str, Interval]:
    """How many times as fast the candidate is as each rival, with intervals; nothing where it is not timed."""
    if CANDIDATE not in samples:
        return {}
    mine = samples[CANDIDATE]
    return {name: median_interval(paired_ratios(mine, own)) for name, own in samples.items() if name != CANDIDATE}


def _is_settled(samples: dict[str, list[float]]) -> bool:
    return all(interval.uncertainty <= PRECISION for interval in _ratios(samples).values())


def asked(side: Side, command: Command, expected: type[ReplyT], descriptor: int | None = None) -> ReplyT:
    """A side's reply to a command.

    Raises:
        CandidateStopped: The candidate failed, or answered with something else.
        BaselineError: The baseline did.
    """
    try:
        reply: Any = side.worker.request(command, side.clock, "running timed calls", descriptor)
        if not isinstance(reply, expected):
            raise stop_for(reply)
    except CandidateStopped as stop:
        if side.is_candidate:
            raise
        raise BaselineError(side.name, stop.message) from None
    return reply


def claimed(side: Side, backward: Backward | None) -> tuple[float, float]:
    """What a side says that one call took, and what the judge saw pass, in milliseconds.

    Raises:
        CandidateStopped: The candidate failed, or claims more time than the judge saw pass.
        BaselineError: The baseline did.
    """
    started = time.perf_counter()
    reply = asked(side, Time(backward, side.is_queued, side.is_replayed), Timed)
    window = (time.perf_counter() - started) * 1e3
    if not 0 < reply.milliseconds <= window:
        message = f"the worker claims {reply.milliseconds} ms for a call that took {window:.3f} ms by the judge's clock"
        if side.is_candidate:
            raise CandidateStopped(Status.CHEATED, message, rule="clock")
        raise BaselineError(side.name, message)
    return reply.milliseconds, window
