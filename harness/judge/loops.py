"""Windows over many calls in a row, by the judge's clock, and what of their results the judge looks at.

A window begins with the judge's command and ends when the judge has private copies of results: elements at places, and
of calls, that nobody but the judge knows, the last call always among them. So work that is left for later, on another
stream, in a thread or behind the answer, is in the window, or missing in a copy. Each window has fresh inputs, and
whoever is not timed is stopped, so that nobody begins before the command, or slows the other down. Both sides run on
the same inputs, and in every window the candidate's elements are compared with eager's. The results of one call of one
window, which nobody knows either, are compared in full with the exact reference afterwards.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.judge.draws import derive_seed
from harness.judge.handle import CandidateStopped
from harness.judge.series import Side, asked
from harness.judge.slots import Slots
from harness.records import Status
from harness.timing.certificate import Windows
from harness.wire.messages import Armed, DropSlots, Go, Loop, Looped, Mapped, MapSlots, Released

#: Rounds of short and long windows: at least, and at most while they take no longer than this.
LEAST_ROUNDS, MOST_ROUNDS, BUDGET_S = 2, 7, 0.25
#: Results are looked at after so many calls of a window, or after all where there are fewer.
CALLS_LOOKED_AT = 4
#: Of a window's elements so many must be near eager's; rounding, and flips at kinks, may move a few.
AGREEING_SHARE = 0.99
#: Near means within this share of the tensor's root mean square.
NEARNESS = 0.1


@dataclass(frozen=True)
class Audited:
    """The call that is compared in full.

    Attributes:
        inputs: What it gets.
        seed: Seed of whatever it draws.
    """

    inputs: Sequence[Any]
    seed: int


@dataclass(frozen=True)
class Found:
    """The windows of one direction.

    Attributes:
        candidate: The candidate's.
        eager: Eager PyTorch's.
        storing: Those in which results' places are written and nothing else happens.
        results: The results of the audited call, private copies.
    """

    candidate: Windows
    eager: Windows
    storing: Windows
    results: list[torch.Tensor]


class Loops:
    """Runs the windows of one direction.

    Args:
        sides: The candidate and eager, in the state of the last ``Forward``.
        commands: What each loops over, slots left out.
        slots: Places for twice ``calls`` calls; mapped by both sides while this is in use.
        calls: Calls in a short window.
        fresh_inputs: Draws the inputs of a call under a seed.
        audited: The call to be compared in full.
        telling: For each result, whether eager's says what the candidate's must be.
        secret: What seeds derive from.
    """

    def __init__(
        self,
        sides: tuple[Side, Side],
        commands: tuple[Loop, Loop],
        slots: Slots,
        calls: int,
        fresh_inputs: Callable[[int], list[Any]],
        audited: Audited,
        telling: Sequence[bool],
        secret: str,
    ):
        self._sides = sides
        self._commands = commands
        self._slots = slots
        self._calls = calls
        self._fresh_inputs = fresh_inputs
        self._audited = audited
        self._telling = telling
        self._secret = secret
        self._choose = random.Random(derive_seed(secret, "choices"))

    def run(self, least_rounds: int = LEAST_ROUNDS) -> Found:
        """Run short and long windows of all sides in turn.

        Args:
            least_rounds: How often at least.

        Raises:
            CandidateStopped: The candidate failed, changed an input, or left a result out.
            BaselineError: The baseline failed.
        """
        for side in self._sides:
            asked(side, MapSlots(self._slots.total_bytes), Mapped, self._slots.descriptor)
        times: dict[tuple[int, str], list[float]] = {}
        audited = self._choose.randrange(least_rounds), self._choose.randrange(2)
        results: list[torch.Tensor] = []
        with contextlib.ExitStack() as both:
            for side in self._sides:
                both.callback(side.worker.resume)
            self._window(1, "warm-up", None)
            started = time.monotonic()
            for number in range(max(least_rounds, MOST_ROUNDS)):
                if number >= least_rounds and time.monotonic() - started > BUDGET_S:
                    break
                for kind, count in enumerate((self._calls, 2 * self._calls)):
                    keep = results if (number, kind) == audited else None
                    for name, milliseconds in self._window(count, f"{count}:{number}", keep).items():
                        times.setdefault((count, name), []).append(milliseconds)
        self._slots.check_guards()
        for side in self._sides:  # where something failed, both sides are released or ended as they are
            asked(side, DropSlots(), Released)
        candidate, eager, storing = (
            Windows(self._calls, tuple(times[self._calls, name]), tuple(times[2 * self._calls, name]))
            for name in ("candidate", "eager", "storing")
        )
        return Found(candidate, eager, storing, results)

    def _window(self, count: int, name: str, keep: list[torch.Tensor] | None) -> dict[str, float]:
        """A window of each side on the same inputs, in random order; milliseconds by side.

        Args:
            count: How many calls.
            name: Name of the window, for seeds.
            keep: Filled with the results of the audited call, which is among the calls where this is given.
        """
        secret = self._choose.randrange(count)
        seeds = [derive_seed(self._secret, name, number) for number in range(count)]
        if keep is not None:
            seeds[secret] = self._audited.seed
        slots = tuple(replace(place, seed=seed) for place, seed in zip(self._slots.places, seeds, strict=False))
        mine, theirs = (replace(command, slots=slots) for command in self._commands)
        self._arm(self._sides[0], mine)  # before its inputs are there
        self._sides[1].worker.pause()
        for number in range(count):
            is_audited = keep is not None and number == secret
            seed = derive_seed(self._secret, name, number, "inputs")
            self._slots.write(number, self._audited.inputs if is_audited else self._fresh_inputs(seed))
        others = [number for number in range(count) if number not in (secret, count - 1)]
        looked_at = sorted({secret, count - 1, *self._choose.sample(others, min(len(others), CALLS_LOOKED_AT - 2))})
        sampling = derive_seed(self._secret, name, "sampling")
        places = self._slots.result_places(sampling)
        inputs = {number: self._slots.sampled_inputs(number, sampling) for number in looked_at}
        runs = [
            ("candidate", self._sides[0], None),
            ("eager", self._sides[1], theirs),
            ("storing", self._sides[1], replace(theirs, store_only=True)),
        ]
        self._choose.shuffle(runs)
        times, samples = {}, {}
        for label, side, command in runs:
            if command is not None:
                self._arm(side, command)
            self._slots.poison(count)
            self._slots.settle()
            times[label], samples[label] = self._timed(side, looked_at, places)
            if label == "candidate":
                for number in looked_at:
                    self._slots.check_inputs(number, sampling, inputs[number])
                if keep is not None:
                    keep += self._slots.results(secret, places, samples[label][looked_at.index(secret)])
        for received, eager in zip(samples["candidate"], samples["eager"], strict=True):
            for tensor, expected, tells in zip(received, eager, self._telling, strict=True):
                if tells:
                    _check_agreement(tensor, expected, count, bool(mine.leaves))
        return times

    def _arm(self, side: Side, command: Loop) -> None:
        """Have a side prepare its calls, and stop it."""
        side.worker.resume()
        asked(side, command, Armed)
        side.worker.pause()

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
            status = Status.WRONG_GRADIENT if self._commands[0].leaves else Status.WRONG_OUTPUT
            raise CandidateStopped(status, f"in timed calls, without a pause between them: {reply.fault}")
        return milliseconds, samples


def _check_agreement(received: torch.Tensor, eager: torch.Tensor, calls: int, is_gradient: bool) -> None:
    """Verify that elements of a result are where eager's are, all but a few.

    Raises:
        CandidateStopped: They are not.
    """
    if received.dtype.is_floating_point:
        mine, theirs = received.double(), eager.double()
        finite = theirs[theirs.isfinite()]
        scale = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
        near = ((mine - theirs).abs() <= NEARNESS * scale) | (mine == theirs) | (mine.isnan() & theirs.isnan())
        if scale == 0:  # where eager is zero, or nowhere finite, being near means nothing
            near = mine.isfinite() | (mine.isnan() & theirs.isnan())
    else:
        near = received == eager
    share = float(near.double().mean()) if near.numel() else 1.0
    if share < AGREEING_SHARE:
        raise CandidateStopped(
            Status.WRONG_GRADIENT if is_gradient else Status.WRONG_OUTPUT,
            f"one of {calls} calls in a row, without a pause between them, gave a result that is wrong or missing in "
            f"{1 - share:.1%} of its elements; calls one by one were right. Calls must not share what they work on, "
            "and their work must be done when the device is synchronised",
        )
