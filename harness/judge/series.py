"""Paired, interleaved timing of a candidate and of eager, each in a worker of its own.

For each pair the judge draws fresh inputs, flushes the L2 cache, and asks both workers in random order. Times are the
workers' CUDA events around one call, the device synchronised before and after; the judge's own clock around the
message bounds each from above. These are claims: a candidate that replaces torch's events can still lie downwards.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.judge.handle import CandidateStopped, Clock, WorkerHandle
from harness.judge.trial import stop_for
from harness.records import Status
from harness.timing.statistics import Latency, latency, speedup
from harness.wire.messages import Time, Timed

WARM_UP_CALLS = 2
MIN_PAIRS = 10
MAX_PAIRS = 50
BUDGET_S = 0.8


class BaselineError(Exception):
    """The baseline failed, so that there is nothing to compare with; the candidate's verdict stands."""


@dataclass
class Side:
    """One of the two that are timed.

    Attributes:
        worker: Its worker, ready to be timed.
        clock: The seconds it may still use.
        samples_ms: What its events said.
        windows_ms: What the judge's clock said.
        is_candidate: Whether its failures are the candidate's.
    """

    worker: WorkerHandle
    clock: Clock
    is_candidate: bool = True
    samples_ms: list[float] = field(default_factory=list)
    windows_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Series:
    """A finished series in one direction.

    Attributes:
        candidate: The candidate's latency.
        eager: Eager's latency on the same inputs.
        speedup: Median of the paired ratios, eager over candidate.
    """

    candidate: Latency
    eager: Latency
    speedup: float


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
    renew: Callable[[int], None],
    device: torch.device,
    choose: random.Random,
) -> Series:
    """Time both sides in pairs until the budget of pairs or seconds is spent.

    Args:
        sides: The candidate and the baseline.
        commands: What each is asked.
        renew: Writes fresh inputs for the pair of this number, the same for both sides.
        device: The device, for flushing and synchronising.
        choose: Decides who goes first.

    Raises:
        CandidateStopped: The candidate failed, or claims more time than the judge saw pass.
        BaselineError: The baseline did.
    """
    buffers: dict[int, torch.Tensor] = {}
    both = list(zip(sides, commands, strict=True))
    started = time.monotonic()
    for pair in range(-WARM_UP_CALLS, MAX_PAIRS):
        if pair == 0:
            started = time.monotonic()
        if pair >= MIN_PAIRS and time.monotonic() - started > BUDGET_S:
            break
        renew(pair)
        choose.shuffle(both)
        for side, command in both:
            flush_l2(device, buffers)
            torch.cuda.synchronize(device)
            milliseconds, window = _ask(side, command)
            if pair >= 0:
                side.samples_ms.append(milliseconds)
                side.windows_ms.append(window)
    mine, eager = (latency(side.samples_ms, side.windows_ms) for side in sides)
    return Series(mine, eager, speedup(mine.samples_ms, eager.samples_ms))


def _ask(side: Side, command: Time) -> tuple[float, float]:
    try:
        return _claim(side, command)
    except CandidateStopped as stop:
        if side.is_candidate:
            raise
        raise BaselineError(f"eager PyTorch: {stop.message}") from None


def _claim(side: Side, command: Time) -> tuple[float, float]:
    started = time.perf_counter()
    reply: Any = side.worker.request(command, side.clock, "running timed calls")
    window = (time.perf_counter() - started) * 1e3
    if not isinstance(reply, Timed):
        raise stop_for(reply)
    if not 0 < reply.milliseconds <= window:
        raise CandidateStopped(
            Status.CHEATED,
            f"the worker claims {reply.milliseconds} ms for a call that took {window:.3f} ms by the judge's clock",
            rule="clock",
        )
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
        "speedup": {name: series.speedup for name, series in found.items()},
        "samples": samples,
    }
