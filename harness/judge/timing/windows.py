"""Windows over many calls in a row, by the judge's clock, and what of their results the judge looks at.

A window begins with the judge's command and ends when the judge has private copies of results: elements at places, and
of calls, that nobody but the judge knows, the last call always among them. So work that is left for later, on another
stream, in a thread or behind the answer, is in the window, or missing in a copy. Each call has inputs and cotangents
that nobody has seen before; whoever is not timed is stopped, and watched for whether it is. In every window the
candidate's elements are compared with those of eager, which runs on the same inputs. In every long window one call,
which nobody but the judge knows, has its results kept; those of the fastest long window, which is what bounds the time
from below, are compared in full with the exact reference afterwards.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.judge.compare.comparison import TrialResult
from harness.judge.exchange.slots import Slots
from harness.judge.inputs.draws import derive_seed
from harness.judge.process.handle import CandidateStopped
from harness.judge.timing.paired_timing import BaselineError, Side, asked
from harness.records.record import Status
from harness.system.text import shortened
from harness.timing.certificate import Windows
from harness.wire.commands import DropSlots, Go, Loop, MapSlots
from harness.wire.replies import Armed, Looped, Mapped, Released

#: Rounds of short and long windows: at least, and at most while they take no longer than this.
LEAST_ROUNDS, MOST_ROUNDS, BUDGET_S = 2, 7, 0.25
#: Results are looked at after so many calls of a window, or after all where there are fewer.
CALLS_LOOKED_AT = 4
#: Near eager's means within this share of the tensor's root mean square.
NEARNESS = 0.1
#: How much of its processors' time a stopped candidate may be seen to use: what was under way when it was stopped.
MOST_AWAKE_S = 0.005
MAX_FAULT_CHARACTERS = 300


class Uncertified(Exception):
    """The windows prove nothing; the message says why. The verdict on the candidate's values stands.

    Args:
        words: Why.
        audit: What the audited call came to; None where none was compared.
    """

    def __init__(self, words: str, audit: TrialResult | None = None):
        super().__init__(words)
        self.audit = audit


@dataclass(frozen=True)
class Call:
    """What a call gets.

    Attributes:
        inputs: Its arguments.
        cotangents: What its outputs are differentiated with; none for a forward.
        seed: Seed of whatever it draws.
        drawn: What the judge needs to compare its results in full; None where they will not be.
    """

    inputs: Sequence[Any]
    cotangents: Sequence[torch.Tensor]
    seed: int
    drawn: Any = None


@dataclass(frozen=True)
class Likeness:
    """How near a result must be to eager's.

    Attributes:
        share: So many of its elements within ``NEARNESS``, or equal where they are no floating numbers.
        median: Bound of the median deviation over the root mean square; None where the tensor is little but rounding,
            and need not be near at all.
    """

    share: float
    median: float | None


@dataclass(frozen=True)
class WindowTimes:
    """The windows of one direction.

    Attributes:
        candidate: The candidate's.
        eager: Eager PyTorch's.
        storing: Those in which results' places are written and nothing else happens.
        audited: The call of the fastest long window that is to be compared in full.
        results: Its results, private copies.
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
        commands: What each loops over, slots left out.
        slots: Places for twice ``calls`` calls; mapped by both sides while this is in use.
        calls: Calls in a short window.
        fresh: Draws a call under a seed; one that is to be compared in full where the second argument says so.
        likeness: For each result, how near it must be to eager's.
        secret: What seeds derive from.
    """

    def __init__(
        self,
        sides: tuple[Side, Side],
        commands: tuple[Loop, Loop],
        slots: Slots,
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

    def run(self, least_rounds: int = LEAST_ROUNDS) -> WindowTimes:
        """Run short and long windows of all sides in turn.

        Args:
            least_rounds: How often at least.

        Raises:
            CandidateStopped: The candidate failed, changed what it was given, or left a result out.
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
            self._window(1, "warm-up", False)
            started = time.monotonic()
            for number in range(max(least_rounds, MOST_ROUNDS)):
                if number >= least_rounds and time.monotonic() - started > BUDGET_S:
                    break
                for count in (self._calls, 2 * self._calls):
                    is_long = count > self._calls
                    found, audited = self._window(count, f"{count}:{number}", is_long)
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
        """Have both sides give the slots back; where a side failed it is ended or released as it is."""
        for side in self._sides:
            asked(side, DropSlots(), Released)

    def _window(
        self, count: int, name: str, with_audit: bool
    ) -> tuple[dict[str, float], tuple[Call, list[torch.Tensor]] | None]:
        """A window of each side on the same inputs, in random order.

        Args:
            count: How many calls.
            name: Name of the window, for seeds.
            with_audit: Whether one of the calls is to be compared in full.

        Returns:
            Milliseconds by side, and that call with its results.
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
        self._arm(candidate, mine)  # before what it is to be given is there
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
        for label, side, command in runs:
            if command is not None:
                self._arm(side, command)
            self._slots.poison(count)
            self._slots.settle()
            if side is candidate:
                self._check_asleep()
            times[label], samples[label] = self._timed(side, looked_at, places)
            if side is candidate:
                for number in looked_at:
                    self._slots.check_given(number, sampling, given[number])
                if audited is not None:
                    results = self._slots.results(secret, places, samples[label][looked_at.index(secret)])
        self._check_asleep()
        self._compare(samples["candidate"], samples["eager"], count)
        return times, None if audited is None else (audited, results)

    def _arm(self, side: Side, command: Loop) -> None:
        """Have a side prepare its calls, and stop it."""
        side.worker.resume()
        asked(side, command, Armed)
        side.worker.pause()

    def _check_asleep(self) -> None:
        """Verify that the candidate did nothing since it was stopped.

        Raises:
            Uncertified: It did.
        """
        used_s = self._sides[0].worker.used_since_pause_s()
        if used_s > MOST_AWAKE_S:
            raise Uncertified(f"the candidate used {used_s * 1e3:.0f} ms of the processor while it was stopped")

    def _timed(
        self, side: Side, looked_at: Sequence[int], places: Sequence[torch.Tensor | None]
    ) -> tuple[float, list[list[torch.Tensor]]]:
        """Milliseconds from the command to the end of the copies, and these, by call and result."""
        started = time.perf_counter()
        side.worker.resume()
        reply = asked(side, Go(), Looped)
        samples = [self._slots.sampled_results(number, places) for number in looked_at]
        self._slots.settle()
        milliseconds = (time.perf_counter() - started) * 1e3
        side.worker.pause()
        if reply.fault:
            fault = f"in timed calls, without a pause between them: {shortened(reply.fault, MAX_FAULT_CHARACTERS)}"
            if not side.is_candidate:
                raise BaselineError(side.name, fault)
            raise CandidateStopped(self._wrong, fault)
        return milliseconds, samples

    @property
    def _wrong(self) -> Status:
        return Status.WRONG_GRADIENT if self._commands[0].leaves else Status.WRONG_OUTPUT

    def _compare(self, received: list[list[torch.Tensor]], eager: list[list[torch.Tensor]], calls: int) -> None:
        """Verify that the candidate's elements are where eager's are.

        Raises:
            CandidateStopped: Too few of them are.
            Uncertified: Their deviations are not those of a candidate that has passed.
        """
        for mine, theirs in zip(received, eager, strict=True):
            for tensor, expected, likeness in zip(mine, theirs, self._likeness, strict=True):
                if likeness.median is None or not tensor.numel():
                    continue
                share, median = agreement(tensor, expected)
                if share < likeness.share:
                    raise CandidateStopped(
                        self._wrong,
                        f"one of {calls} calls in a row, without a pause between them, gave a result that is wrong or "
                        f"missing in {1 - share:.1%} of its elements; calls one by one were right. Calls must not "
                        "share what they work on, and their work must be done when the device is synchronised",
                    )
                if median > likeness.median:
                    raise Uncertified(
                        f"results of calls in a row deviate from eager's by {median:.1e} (median, over the root mean "
                        f"square), more than {likeness.median:.1e}, which those of calls by themselves would"
                    )


def agreement(received: torch.Tensor, eager: torch.Tensor) -> tuple[float, float]:
    """The share of elements that are near eager's, and the median deviation over the root mean square of eager's.

    Integers and truth values must be equal to be near, and have no deviation.
    """
    if not received.dtype.is_floating_point:
        return float((received == eager).double().mean()), 0.0
    mine, theirs = received.double(), eager.double()
    finite = theirs[theirs.isfinite()]
    scale = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    same = (mine == theirs) | (mine.isnan() & theirs.isnan())
    deviation = torch.where(same, 0.0, (mine - theirs).abs())
    share = float((deviation <= NEARNESS * scale).double().mean())  # NaN is near nothing
    median = float(deviation.nan_to_num(float("inf")).median())
    return share, median / scale if scale else (float("inf") if median else 0.0)
