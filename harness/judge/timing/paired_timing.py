"""Times a candidate and its baselines in interleaved pairs, each in its own worker.

For each round the judge draws fresh inputs and asks all sides in random order. It flushes the L2
cache before each. Times come from the workers' CUDA events around one call, so they are claims. The
judge's own clock around the message bounds each claim from above, and ``timing.windows`` bounds
them from below.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch

from harness.judge.compare.trial_result import TrialResult
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.judge.process.faults import Faults, stop_for
from harness.judge.process.time_limits import Clock
from harness.judge.process.worker_handle import WorkerHandle
from harness.records.baselines import BASELINES, EAGER
from harness.records.record import Status
from harness.records.rules import CLOCK
from harness.timing.statistics import Interval, Latency, latency, median_interval, paired_ratios
from harness.wire.commands import Backward, Command, TimeCalls, Vary
from harness.wire.replies import Timed, Varied

CANDIDATE = "candidate"
WARM_UP_ROUNDS = 2
MIN_ROUNDS = 10
MAX_ROUNDS = 50
#: Ratios known to this precision end a series after so few rounds. So does a candidate whose fastest call
#: takes this multiple of any call of a rival.
SOON_ROUNDS, SOON_PRECISION, FAR_BEHIND = 6, 0.0025, 10.0
#: A series with a speedup to beat ends after ``SOON_ROUNDS`` if the whole interval of the candidate's
#: speedup lies so far below it, as a share. Two short runs of one setting differ by less
#: (benchmarks/README.md, "On a GPU, beside Kernel Tuner").
HOPELESS = 0.1
#: Seconds of a series for each side.
BUDGET_S = 0.4
#: If all sides take longer than the first number, their launches get a head start of that many
#: microseconds. Python and the driver take 0.2 to 0.4 ms to resume work, which varies more than a
#: kernel does.
LONG_MS, HEAD_START_US = 0.5, 1000
#: A head start longer than any launch, so that a time contains nothing of launching.
FULL_HEAD_START_US = 2000
#: Tolerance on the time until the device is idle, beyond that after eager's calls: milliseconds, and
#: a share of the call.
WAKING_MS, WAKING_SHARE = 0.05, 0.01
#: Limits on a busy device. The flush before a baseline's call may take this multiple of the best
#: flush, and this many milliseconds more. The device may be busy after a baseline's call for that many
#: milliseconds longer than after the candidate's. Nobody shares the device, unless the candidate
#: left something running there. The device then serves that for 2 ms at a time, as often as the
#: baseline.
BUSY_FACTOR, BUSY_MS = 4.0, 1.0
#: A series is long enough when the interval of its median ratio extends by no more than this share
#: either way.
PRECISION = 0.005

ReplyT = TypeVar("ReplyT")


class ClockRuleBroken(CandidateStopped):
    """A broken rule ``clock``: the judge's clock refutes a claim, or the GPU was busy beside baselines.

    Other users of the GPU can be the reason for both.

    Attributes:
        series: The refuted series.
        audit: Result of the audited call; None where there was none yet.
    """

    def __init__(self, message: str, series: Series, audit: TrialResult | None = None):
        super().__init__(Status.CHEATED, message, rule=CLOCK)
        self.series = series
        self.audit = audit


class BaselineError(Exception):
    """A baseline failed; the candidate's verdict stands.

    Attributes:
        name: The baseline's name.
    """

    def __init__(self, name: str, message: str):
        super().__init__(message)
        self.name = name

    @property
    def words(self) -> str:
        """The message for the user."""
        return f"{BASELINES[self.name].meaning if self.name in BASELINES else self.name}: {self}"


@dataclass
class Side:
    """A candidate or baseline that is being timed.

    Attributes:
        worker: Its worker, ready to be timed.
        clock: The seconds that it may still use.
        name: ``candidate``, or the baseline's name.
        vary: The command that makes the worker run this side, if it can run several.
        head_start_us: Head start of its launches (see ``wire.commands.TimeCalls``). None for the
            head start of the series.
        is_replayed: Whether it replays a CUDA graph.
    """

    worker: WorkerHandle
    clock: Clock
    name: str = CANDIDATE
    vary: Vary | None = None
    head_start_us: int | None = None
    is_replayed: bool = False

    @property
    def is_candidate(self) -> bool:
        """True if this side is the candidate, so that its failures count against the candidate."""
        return self.name == CANDIDATE

    def take_up(self) -> None:
        """Have its worker run this side from now on.

        Raises:
            BaselineError: The worker cannot.
        """
        if self.vary is not None:
            asked(self, self.vary, Varied)


class Claim(NamedTuple):
    """A worker's claim about one call, and the time that the judge saw pass.

    Attributes:
        milliseconds: Claimed duration of the call.
        behind_ms: Time from the end of the call until the host saw the whole device idle.
        window_ms: Time by the judge's clock.
    """

    milliseconds: float
    behind_ms: float
    window_ms: float


@dataclass(frozen=True)
class Series:
    """A finished series in one direction.

    Attributes:
        latencies: Latencies by side, including the candidate's, all on the same inputs.
        speedups: By baseline the median of the paired ratios, baseline over candidate, with its
            interval.
        hidden_ms: How long the device still worked for the candidate after its call; 0 where that
            is negligible. Otherwise all times last until the whole device was idle.
        head_start_us: Head start of all launches.
        beaten_by: The speedup over eager that the candidate was to beat, if the series ended early
            because the candidate is far slower; else 0.
    """

    latencies: dict[str, Latency]
    speedups: dict[str, Interval]
    hidden_ms: float = 0.0
    head_start_us: int = 0
    beaten_by: float = 0.0

    @property
    def candidate(self) -> Latency:
        """The candidate's latency."""
        return self.latencies[CANDIDATE]

    @property
    def eager(self) -> Latency:
        """Eager's latency."""
        return self.latencies[EAGER]


def flush_l2(device: torch.device, cache: dict[int, torch.Tensor]) -> None:
    """Write twice the L2's size and wait, so that the cache holds nothing useful; no-op on the CPU."""
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
    *,
    choose: random.Random,
    between: Callable[[], object],
    rounds: int = MAX_ROUNDS,
    gives_head_start: bool = True,
    to_beat: float = 0.0,
) -> Series:
    """Time all sides in rounds until the ratios are precise or the budget is spent.

    Args:
        sides: The candidate and its rivals, with the backward of each; None for a forward.
        renew: Draws the inputs of a round by its number. Calling the result writes them for one
            side.
        device: The device, whose L2 cache is flushed.
        choose: Decides the order of the sides.
        between: Called after each round.
        rounds: The most rounds.
        gives_head_start: Whether launches get a head start if all calls are long.
        to_beat: A speedup over eager. The series ends early once the candidate is certainly far
            slower than that; 0 for none.

    Raises:
        CandidateStopped: The candidate failed, or claims more time than the judge saw pass.
        ClockRuleBroken: The device was busy while the rivals were timed.
        BaselineError: A baseline failed.
    """
    buffers: dict[int, torch.Tensor] = {}
    claims: dict[str, list[Claim]] = {side.name: [] for side, _ in sides}
    flushes: dict[str, list[float]] = {side.name: [] for side, _ in sides}
    order = list(sides)
    head_start_us, beaten_by = 0, 0.0
    workers = {id(side.worker): side.worker for side, _ in sides}
    started = time.monotonic()
    for number in range(-WARM_UP_ROUNDS, rounds):
        if number == 0:
            started = time.monotonic()
            if gives_head_start and all(claim.milliseconds > LONG_MS for found in claims.values() for claim in found):
                head_start_us = HEAD_START_US
            claims, flushes = {name: [] for name in claims}, {name: [] for name in claims}
        is_over = time.monotonic() - started > BUDGET_S * len(sides)
        if number >= MIN_ROUNDS and (is_over or _is_settled(claims, PRECISION)):
            break
        if number >= SOON_ROUNDS and (_is_settled(claims, SOON_PRECISION) or _is_far_behind(claims)):
            break
        if number >= SOON_ROUNDS and _is_hopeless(claims, to_beat):
            beaten_by = to_beat
            break
        write = renew(number)
        choose.shuffle(order)
        for side, backward in order:
            side.take_up()
            write()
            began = time.perf_counter()
            flush_l2(device, buffers)
            flushes[side.name].append((time.perf_counter() - began) * 1e3)
            with contextlib.ExitStack() as others:  # Stop all workers that are not being timed.
                for worker in workers.values():
                    if worker is not side.worker:
                        worker.pause()
                        others.callback(worker.resume)
                claims[side.name].append(claimed(side, backward, head_start_us))
        between()
    series = replace(_series(claims, head_start_us), beaten_by=beaten_by)
    _check_idle(flushes, claims, series)
    return series


def _check_idle(flushes: Mapping[str, Sequence[float]], claims: Mapping[str, Sequence[Claim]], series: Series) -> None:
    """Check that the device was free while rivals were timed.

    A host that wakes up slowly does so after the candidate's calls, too. So the judge compares
    rivals with the candidate.

    Args:
        flushes: Duration of the judge's own flush before each call, in milliseconds, by side.
        claims: The sides' claims about their calls; rivals do not lie.
        series: The series made of the claims.

    Raises:
        ClockRuleBroken: The device was busy.
    """
    if CANDIDATE not in flushes:
        return
    best = min(took for every in flushes.values() for took in every)
    behind_ms = {name: statistics.median(claim.behind_ms for claim in every) for name, every in claims.items()}
    for name in flushes:
        if name == CANDIDATE:
            continue
        before, behind = statistics.median(flushes[name]), behind_ms[name]
        if before > BUSY_FACTOR * best + BUSY_MS:
            found = f"before {name} was timed: a flush that takes the judge {best:.3g} ms took {before:.3g} ms"
        elif behind > BUSY_MS + behind_ms[CANDIDATE]:
            own = f"{behind_ms[CANDIDATE]:.3g} ms after the candidate's"
            found = f"after calls of {name}: it became idle {behind:.3g} ms after them, {own}"
        else:
            continue
        raise ClockRuleBroken(f"other work ran on the device {found}", series)


def _series(claims: Mapping[str, Sequence[Claim]], head_start_us: int) -> Series:
    """Make a series of the claims."""
    hidden_ms = _hidden_ms(claims)
    samples = {
        name: [claim.milliseconds + (claim.behind_ms if hidden_ms else 0.0) for claim in own]
        for name, own in claims.items()
    }
    latencies = {
        name: latency(samples[name], [one.window_ms for one in own], [one.behind_ms for one in own])
        for name, own in claims.items()
    }
    speedups = {name: found.widened() for name, found in _ratios(samples).items()}
    return Series(latencies, speedups, hidden_ms, head_start_us)


def _hidden_ms(claims: Mapping[str, Sequence[Claim]]) -> float:
    """Return how much longer the device works after the candidate's calls than after eager's.

    It is 0 where noise may explain it. An event at the end of the current stream is precise, but
    does not see other streams. An idle device shows those, but the host has to wake up first. It
    wakes up equally slowly on both sides, which is why eager serves as the comparison.
    """
    if CANDIDATE not in claims or EAGER not in claims:
        return 0.0
    mine, eager = (statistics.median(claim.behind_ms for claim in claims[name]) for name in (CANDIDATE, EAGER))
    call = statistics.median(claim.milliseconds for claim in claims[CANDIDATE])
    return mine - eager if mine - eager > WAKING_MS + WAKING_SHARE * call else 0.0


def _ratios(samples: Mapping[str, Sequence[float]]) -> dict[str, Interval]:
    """Return the candidate's speedup over each rival from samples; empty if it is not timed."""
    if CANDIDATE not in samples:
        return {}
    mine = samples[CANDIDATE]
    return {name: median_interval(paired_ratios(mine, own)) for name, own in samples.items() if name != CANDIDATE}


def _is_settled(claims: Mapping[str, Sequence[Claim]], precision: float) -> bool:
    ratios = _ratios({name: [claim.milliseconds for claim in own] for name, own in claims.items()})
    return bool(ratios) and all(interval.uncertainty <= precision for interval in ratios.values())


def _is_far_behind(claims: Mapping[str, Sequence[Claim]]) -> bool:
    """Return whether even the candidate's fastest call takes ``FAR_BEHIND`` times every rival's slowest."""
    if CANDIDATE not in claims or len(claims) < 2:
        return False
    fastest = min(claim.milliseconds for claim in claims[CANDIDATE])
    slowest = max(claim.milliseconds for name, own in claims.items() if name != CANDIDATE for claim in own)
    return fastest >= FAR_BEHIND * slowest


def _is_hopeless(claims: Mapping[str, Sequence[Claim]], to_beat: float) -> bool:
    """Return whether the whole interval of the candidate's speedup over eager lies far below the one to beat."""
    if not to_beat or not {CANDIDATE, EAGER} <= claims.keys():
        return False
    ratios = _ratios({name: [claim.milliseconds for claim in claims[name]] for name in (CANDIDATE, EAGER)})
    return ratios[EAGER].widened().high < (1 - HOPELESS) * to_beat


def asked(side: Side, command: Command, expected: type[ReplyT], descriptor: int | None = None) -> ReplyT:
    """Return a side's reply to a command.

    Raises:
        CandidateStopped: The candidate failed, or answered with something else.
        BaselineError: The baseline did.
    """
    try:
        reply: Any = side.worker.request(command, side.clock, "running timed calls", descriptor)
        if not isinstance(reply, expected):
            raise stop_for(reply, Faults())
    except CandidateStopped as stop:
        if side.is_candidate:
            raise
        raise BaselineError(side.name, stop.message) from None
    return reply


def claimed(side: Side, backward: Backward | None, head_start_us: int) -> Claim:
    """Return a side's claim about one call, and the time that the judge saw pass.

    The given head start applies if the side has none of its own.

    Raises:
        CandidateStopped: The candidate failed, or claims more time than the judge saw pass.
        BaselineError: The baseline did.
    """
    started = time.perf_counter()
    own = head_start_us if side.head_start_us is None else side.head_start_us
    reply = asked(side, TimeCalls(backward, own, side.is_replayed), Timed)
    window = (time.perf_counter() - started) * 1e3
    if not (reply.milliseconds > 0 and reply.behind_ms >= 0 and reply.milliseconds + reply.behind_ms <= window):
        claim = f"{reply.milliseconds} ms for a call, and {reply.behind_ms} ms more until the device was idle"
        message = f"the worker claims {claim}, but the judge's clock measured {window:.3f} ms for both"
        if side.is_candidate:
            raise CandidateStopped(Status.CHEATED, message, rule=CLOCK)
        raise BaselineError(side.name, message)
    return Claim(reply.milliseconds, reply.behind_ms, window)
