"""Paired, interleaved timing of a candidate and of eager, each in a worker of its own.

For each pair the judge draws fresh inputs, flushes the L2 cache, and asks both workers in random order. Times are the
workers' CUDA events around one call, the device synchronised before and after. They are claims: the judge's own clock
around the message bounds each from above, and ``judge.loops`` bounds them from below.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from harness.judge.handle import CandidateStopped, Clock, WorkerHandle
from harness.judge.trial import stop_for
from harness.records import Status
from harness.timing.statistics import Interval, Latency, latency, median_interval, paired_ratios
from harness.wire.messages import Command, Time, Timed

WARM_UP_CALLS = 2
MIN_PAIRS = 10
MAX_PAIRS = 50
BUDGET_S = 0.8
#: A series is long enough when the interval of its median ratio reaches no further than this share of it either way.
PRECISION = 0.005

ReplyT = TypeVar("ReplyT")


class BaselineError(Exception):
    """The baseline failed, so that there is nothing to compare with; the candidate's verdict stands."""


@dataclass
class Side:
    """One of the two that are timed.

    Attributes:
        worker: Its worker, ready to be timed.
        clock: The seconds it may still use.
        is_candidate: Whether its failures are the candidate's.
    """

    worker: WorkerHandle
    clock: Clock
    is_candidate: bool = True


@dataclass(frozen=True)
class Series:
    """A finished series in one direction.

    Attributes:
        candidate: The candidate's latency.
        eager: Eager's latency on the same inputs.
        speedup: Median of the paired ratios, eager over candidate, with its interval.
    """

    candidate: Latency
    eager: Latency
    speedup: Interval


def flush_l2(device: torch.device, cache: dict[int, torch.Tensor]) -> None:
    """Write twice the L2's size, so that nothing a candidate left there is found."""
    index = device.index or 0
    if index not in cache:
        size = int(torch.cuda.get_device_properties(device).L2_cache_size)
        cache[index] = torch.empty(2 * size, dtype=torch.uint8, device=device)
    cache[index].zero_()


def measure(
    sides: tuple[Side, Side],
    commands: tuple[Time, Time],
    renew: Callable[[int], Callable[[], object]],
    device: torch.device,
    choose: random.Random,
) -> Series:
    """Time both sides in pairs, until the ratio is known well enough or the budget of pairs or seconds is spent.

    Args:
        sides: The candidate and the baseline.
        commands: What each is asked.
        renew: Draws what the pair of this number is given; calling its result writes that, for one side.
        device: The device, for flushing and synchronising.
        choose: Decides who goes first.

    Raises:
        CandidateStopped: The candidate failed, or claims more time than the judge saw pass.
        BaselineError: The baseline did.
    """
    buffers: dict[int, torch.Tensor] = {}
    samples: tuple[list[float], list[float]] = [], []
    windows: tuple[list[float], list[float]] = [], []
    both = list(zip(sides, commands, samples, windows, strict=True))
    started = time.monotonic()
    for pair in range(-WARM_UP_CALLS, MAX_PAIRS):
        if pair == 0:
            started = time.monotonic()
        if pair >= MIN_PAIRS and (time.monotonic() - started > BUDGET_S or _is_settled(*samples)):
            break
        write = renew(pair)
        choose.shuffle(both)
        for side, command, of_events, of_judge in both:
            write()
            flush_l2(device, buffers)
            torch.cuda.synchronize(device)
            with contextlib.ExitStack() as others:  # whoever is not timed is stopped
                for other in sides:
                    if other is not side:
                        other.worker.pause()
                        others.callback(other.worker.resume)
                milliseconds, window = _claim(side, command)
            if pair >= 0:
                of_events.append(milliseconds)
                of_judge.append(window)
    mine, eager = map(latency, samples, windows)
    return Series(mine, eager, median_interval(paired_ratios(mine.samples_ms, eager.samples_ms)))


def _is_settled(mine: Sequence[float], theirs: Sequence[float]) -> bool:
    return median_interval(paired_ratios(mine, theirs)).uncertainty <= PRECISION


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
        raise BaselineError(f"eager PyTorch: {stop.message}") from None
    return reply


def _claim(side: Side, command: Time) -> tuple[float, float]:
    started = time.perf_counter()
    reply = asked(side, command, Timed)
    window = (time.perf_counter() - started) * 1e3
    if not 0 < reply.milliseconds <= window:
        message = f"the worker claims {reply.milliseconds} ms for a call that took {window:.3f} ms by the judge's clock"
        if side.is_candidate:
            raise CandidateStopped(Status.CHEATED, message, rule="clock")
        raise BaselineError(f"eager PyTorch: {message}")
    return reply.milliseconds, window


def summary(directions: Sequence[tuple[str, Series]]) -> dict[str, Any]:
    """The fields of a record that these series fill, by direction: ``forward``, ``forward_backward``."""
    found = dict(directions)
    eager = {f"{name}_ms": series.eager.median_ms for name, series in found.items()}
    samples = {
        name: {"candidate": vars(series.candidate), "eager": vars(series.eager)} for name, series in found.items()
    }
    return {
        **{f"{name}_ms": series.candidate.median_ms for name, series in found.items()},
        "baselines": {"eager": eager},
        "speedup": {name: series.speedup.ratio for name, series in found.items()},
        "speedup_interval": {name: (series.speedup.low, series.speedup.high) for name, series in found.items()},
        "samples": samples,
    }
