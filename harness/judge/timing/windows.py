"""Measures windows of many calls in a row by the judge's clock, and checks their results.

A window begins with the judge's command. It ends when the judge has private copies of sampled
results: elements at places and calls that only the judge knows, always including the last call.
Work put off to another stream, to a thread or until after the answer therefore falls into the
window, or is missing in a copy.

Each call has fresh inputs and cotangents. The judge stops the side that is not being timed, and
watches that it stays stopped. In every window it compares the candidate's elements with eager's on
the same inputs.

Every long window has one secret call whose results the judge keeps. The fastest long window bounds
the time from below. The judge compares its kept results in full with the exact reference
afterwards.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.judge.compare.trial_result import TrialResult
from harness.judge.exchange.slots import Slots
from harness.judge.inputs.draws import derive_seed
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.judge.timing.paired_timing import BaselineError, Side, asked
from harness.records.record import Status
from harness.system.text import shortened
from harness.timing.certificate import Windows
from harness.wire.commands import DropSlots, Go, Loop, MapSlots
from harness.wire.replies import Armed, Looped, Mapped, Released

#: Rounds of short and long windows: at least, and at most; after the least rounds the seconds of the
#: budget end them.
LEAST_ROUNDS, MOST_ROUNDS, BUDGET_S = 2, 7, 0.25
#: Number of calls of a window whose results the judge samples; all of them in a shorter window.
CALLS_LOOKED_AT = 4
#: An element is near eager's if it is within this share of the tensor's root mean square.
NEARNESS = 0.1
#: Processor time that a stopped candidate may use: work that was under way when it was stopped.
MOST_AWAKE_S = 0.005
#: Windows of a direction that are run again, on fresh inputs, because the candidate did not sleep while it was
#: stopped. A busy machine can keep an honest one awake.
MOST_REPEATS = 3
MAX_FAULT_CHARACTERS = 300


class Uncertified(Exception):
    """The windows prove nothing; the message says why. The verdict on values stands.

    Args:
        words: The reason.
        audit: Result of the audited call; None where none was compared.
    """

    def __init__(self, words: str, audit: TrialResult | None = None):
        super().__init__(words)
        self.audit = audit


@dataclass(frozen=True)
class Call:
    """The data of one call.

    Attributes:
        inputs: The call's arguments.
        cotangents: Cotangents of its outputs; empty for a forward.
        seed: Seed of the random numbers that it draws.
        drawn: The draw for comparing its results in full. None for a call that is not compared.
    """

    inputs: Sequence[Any]
    cotangents: Sequence[torch.Tensor]
    seed: int
    drawn: Any = None


@dataclass(frozen=True)
class Likeness:
    """The largest distance from eager's result that a call may have.

    Attributes:
        share: The least share of elements that must be within ``NEARNESS``. Integers and truth
            values must be equal.
        median: Bound of the median deviation over the root mean square. None for a tensor that is
            little but rounding, which need not be near.
    """

    share: float
    median: float | None


@dataclass(frozen=True)
class WindowTimes:
    """The windows of one direction.

    Attributes:
        candidate: Windows of the candidate.
        eager: Windows of eager PyTorch.
        storing: Windows that only write the places of results.
        audited: The call of the fastest long window that is compared in full.
        results: Private copies of that call's results.
    """

    candidate: Windows
    eager: Windows
    storing: Windows
    audited: Call
    results: list[torch.Tensor]


class Loops:
    """Runs the windows of one direction.

    Args:
        sides: The candidate and eager, in the state of the last ``Forward``.
        commands: The loop command of each side, without slots.
        slots: Places for twice ``calls`` calls. Both sides map them while this is in use.
        calls: Number of calls in a short window.
        fresh: Draws a call under a seed. The second argument says whether the call is compared in
            full.
        likeness: For each result, how near it must be to eager's.
        secret: Secret from which seeds derive.
    """

    def __init__(
        self,
        sides: tuple[Side, Side],
        commands: tuple[Loop, Loop],
        slots: Slots,
        *,
        calls: int,
        fresh: Callable[[int, bool], Call],
        likeness: Sequence[Likeness],
        secret: str,
    ):
        self._sides = sides
        self._commands = commands
        self._slots = slots
        self._calls = calls
        self._fresh = fresh
        self._likeness = likeness
        self._secret = secret
        self._choose = random.Random(derive_seed(secret, "choices"))
        self._repeats = 0

    def run(self, least_rounds: int = LEAST_ROUNDS) -> WindowTimes:
        """Run short and long windows of all sides in turn.

        Args:
            least_rounds: The least number of rounds.

        Raises:
            CandidateStopped: The candidate failed, changed its inputs, or left a result out.
            BaselineError: The baseline failed.
            Uncertified: The windows prove nothing.
        """
        for side in self._sides:
            asked(side, MapSlots(self._slots.total_bytes), Mapped, self._slots.descriptor)
        times: dict[tuple[int, str], list[float]] = {}
        kept: tuple[Call, list[torch.Tensor]] | None = None
        with contextlib.ExitStack() as both:
            for side in self._sides:
                both.callback(side.worker.resume)
            self._quiet_window(1, "warm-up", False)
            started = time.monotonic()
            for number in range(max(least_rounds, MOST_ROUNDS)):
                if number >= least_rounds and time.monotonic() - started > BUDGET_S:
                    break
                for count in (self._calls, 2 * self._calls):
                    is_long = count > self._calls
                    found, audited = self._quiet_window(count, f"{count}:{number}", is_long)
                    fastest = min(times.get((count, "candidate"), [found["candidate"]]))
                    if is_long and found["candidate"] <= fastest:
                        kept = audited
                    for name, milliseconds in found.items():
                        times.setdefault((count, name), []).append(milliseconds)
        self._slots.check_guards()
        self.drop()
        assert kept is not None
        candidate, eager, storing = (
            Windows(self._calls, tuple(times[self._calls, name]), tuple(times[2 * self._calls, name]))
            for name in ("candidate", "eager", "storing")
        )
        return WindowTimes(candidate, eager, storing, *kept)

    def drop(self) -> None:
        """Have both sides unmap the slots; the caller ends or releases a side that failed."""
        for side in self._sides:
            asked(side, DropSlots(), Released)

    def _quiet_window(
        self, count: int, name: str, with_audit: bool
    ) -> tuple[dict[str, float], tuple[Call, list[torch.Tensor]] | None]:
        """Run a window, and run it again if the candidate did not sleep while it was stopped.

        Raises:
            Uncertified: It did not sleep in too many of them.
        """
        while True:
            times, audited, awake = self._window(count, f"{name}:{self._repeats}", with_audit)
            if not awake:
                return times, audited
            self._repeats += 1
            if self._repeats > MOST_REPEATS:
                raise Uncertified(f"the candidate used {awake}")

    def _window(
        self, count: int, name: str, with_audit: bool
    ) -> tuple[dict[str, float], tuple[Call, list[torch.Tensor]] | None, str]:
        """Run a window of each side on the same inputs, in random order.

        Args:
            count: Number of calls.
            name: Name of the window, for seeds.
            with_audit: Whether to compare one of the calls in full.

        Returns:
            Milliseconds by side, the audited call with its results, and what the candidate used of the
            processor while it was stopped, in words; empty if it slept.
        """
        secret = self._choose.randrange(count)
        others = [number for number in range(count) if number not in (secret, count - 1)]
        looked_at = sorted({secret, count - 1, *self._choose.sample(others, min(len(others), CALLS_LOOKED_AT - 2))})
        seeds = [derive_seed(self._secret, name, number) for number in range(count)]
        slots = [
            replace(place, seed=derive_seed(str(seed), "draws"))
            for place, seed in zip(self._slots.places, seeds, strict=False)
        ]
        mine, theirs = (replace(command, slots=tuple(slots)) for command in self._commands)
        candidate, eager = self._sides
        self._arm(candidate, mine)  # The candidate prepares before its inputs exist.
        eager.worker.pause()
        audited = None
        for number in range(count):
            call = self._fresh(seeds[number], with_audit and number == secret)
            self._slots.write(number, call.inputs, call.cotangents)
            audited = replace(call, seed=slots[number].seed) if call.drawn is not None else audited
            del call
        sampling = derive_seed(self._secret, name, "sampling")
        places = self._slots.result_places(sampling)
        given = {number: self._slots.sampled_given(number, sampling) for number in looked_at}
        runs = [
            ("candidate", candidate, None),
            ("eager", eager, theirs),
            ("storing", eager, replace(theirs, store_only=True)),
        ]
        self._choose.shuffle(runs)
        times, samples = {}, {}
        results: list[torch.Tensor] = []
        awake = ""
        for label, side, command in runs:
            if command is not None:
                self._arm(side, command)
            self._slots.poison(count)
            self._slots.settle()
            if side is candidate:
                awake = self._awake()
            times[label], samples[label] = self._timed(side, looked_at, places)
            if side is candidate:
                for number in looked_at:
                    self._slots.check_given(number, sampling, given[number])
                if audited is not None:
                    results = self._slots.results(secret, places, samples[label][looked_at.index(secret)])
        awake = awake or self._awake()
        self._compare(samples["candidate"], samples["eager"], count)
        return times, None if audited is None else (audited, results), awake

    def _arm(self, side: Side, command: Loop) -> None:
        """Have a side prepare its calls, then stop it."""
        side.worker.resume()
        asked(side, command, Armed)
        side.worker.pause()

    def _awake(self) -> str:
        """Return in words what the candidate used of the processor since it was stopped; empty for next to nothing."""
        used_s, thread = self._sides[0].worker.used_since_pause()
        if used_s <= MOST_AWAKE_S:
            return ""
        return f"{used_s * 1e3:.0f} ms of processor time while it was stopped (most by thread {thread!r})"

    def _timed(
        self, side: Side, looked_at: Sequence[int], places: Sequence[torch.Tensor | None]
    ) -> tuple[float, list[list[torch.Tensor]]]:
        """Return milliseconds from the command to the last copy, and the copies by call."""
        started = time.perf_counter()
        side.worker.resume()
        reply = asked(side, Go(), Looped)
        samples = [self._slots.sampled_results(number, places) for number in looked_at]
        self._slots.settle()
        milliseconds = (time.perf_counter() - started) * 1e3
        side.worker.pause()
        if reply.fault:
            fault = f"in timed calls, made without a pause: {shortened(reply.fault, MAX_FAULT_CHARACTERS)}"
            if not side.is_candidate:
                raise BaselineError(side.name, fault)
            raise CandidateStopped(self._wrong, fault)
        return milliseconds, samples

    @property
    def _wrong(self) -> Status:
        return Status.WRONG_GRADIENT if self._commands[0].leaves else Status.WRONG_OUTPUT

    def _compare(self, received: list[list[torch.Tensor]], eager: list[list[torch.Tensor]], calls: int) -> None:
        """Check that the candidate's elements are near eager's.

        Raises:
            CandidateStopped: Too few elements are near.
            Uncertified: The deviations are larger than those of a candidate that passed.
        """
        for mine, theirs in zip(received, eager, strict=True):
            for tensor, expected, likeness in zip(mine, theirs, self._likeness, strict=True):
                if likeness.median is None or not tensor.numel():
                    continue
                share, median = agreement(tensor, expected)
                if share < likeness.share:
                    raise CandidateStopped(
                        self._wrong,
                        f"one of {calls} calls in a row, made without a pause, gave a result that is wrong "
                        f"or missing in {1 - share:.1%} of its elements; single calls were right. Calls must "
                        "not share memory that they write, and their work must be done when the device is "
                        "synchronised",
                    )
                if median > likeness.median:
                    raise Uncertified(
                        f"results of calls in a row deviate from eager's by {median:.1e} (median, over the "
                        f"root mean square); the limit, from single calls, is {likeness.median:.1e}"
                    )


def agreement(received: torch.Tensor, eager: torch.Tensor) -> tuple[float, float]:
    """Return the share of elements near eager's, and the median deviation over eager's RMS.

    Integers and truth values must be equal to be near, and have no deviation.
    """
    if not received.dtype.is_floating_point:
        return float((received == eager).double().mean()), 0.0
    mine, theirs = received.double(), eager.double()
    finite = theirs[theirs.isfinite()]
    scale = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    same = (mine == theirs) | (mine.isnan() & theirs.isnan())
    deviation = torch.where(same, 0.0, (mine - theirs).abs())
    share = float((deviation <= NEARNESS * scale).double().mean())  # NaN is near nothing.
    median = float(deviation.nan_to_num(float("inf")).median())
    return share, median / scale if scale else (float("inf") if median else 0.0)
