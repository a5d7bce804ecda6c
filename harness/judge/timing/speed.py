"""Times a candidate that passed against its rivals, and bounds its times by the judge's clock."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import torch

from harness.judge.case_context import forward_command
from harness.judge.compare.trial_result import TrialResult
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.judge.process.time_limits import Clock
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.timing.certification import certified
from harness.judge.timing.paired_timing import (
    CANDIDATE,
    FULL_HEAD_START_US,
    HOPELESS,
    LONG_MS,
    MAX_ROUNDS,
    BaselineError,
    ClockRuleBroken,
    Series,
    Side,
    asked,
    measure,
)
from harness.judge.timing.rivals import EMPTY, MAX_FAILURE_CHARACTERS, Baseline, Rivals, Scene
from harness.judge.timing.stopwatch import Stopwatch
from harness.judge.timing.timing_target import Direction, TimingTarget, cotangents_of, directions_of
from harness.judge.timing.windows import Uncertified
from harness.records.baselines import EAGER
from harness.records.kernels import KernelUse
from harness.records.record import FEWER_PAIRS, Status
from harness.system.text import shortened
from harness.timing.certificate import Certificate
from harness.timing.statistics import Latency
from harness.wire.commands import DropSlots, Weigh
from harness.wire.replies import Outputs, Released, Traced, Weighed

#: Calls shorter than this are also measured without launching and waiting, and in how many rounds.
SHORT_MS, QUICK_ROUNDS = LONG_MS, 10


@dataclass
class TimingResult:
    """The result of timing a candidate.

    Attributes:
        series: The latencies by direction, as CUDA events claim them.
        told: Further facts about each baseline for the record.
        certified: What the judge's clock proves, by direction.
        audits: Results of the calls that were compared in full.
        reasons: Why a direction is not certified.
        peak_bytes: The most device memory that a call held, by direction and side.
    """

    series: dict[str, Series] = field(default_factory=dict)
    told: dict[str, dict[str, object]] = field(default_factory=dict)
    certified: dict[str, Certificate] = field(default_factory=dict)
    audits: list[TrialResult] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    peak_bytes: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, direction: str, proof: Certificate, audit: TrialResult) -> None:
        """Add a certificate and the audit behind it."""
        self.certified[direction] = proof
        self.audits.append(audit)

    def fields(self) -> dict[str, Any]:
        """Return record fields: samples of all directions, but speed only where it is certified."""
        counted = {name: series for name, series in self.series.items() if name not in self.reasons}
        notes = [
            f"note: other streams were still busy when a call returned ({name}; {series.hidden_ms:.3g} ms): "
            "every time runs until the whole device is idle"
            for name, series in self.series.items()
            if series.hidden_ms
        ]
        notes += [
            f"note: speed ({name}) is not certified and does not count: {why}" for name, why in self.reasons.items()
        ]
        notes += [
            f"note: speed ({name}) is of {len(series.candidate.samples_ms)} {FEWER_PAIRS}: enough to show that the "
            f"candidate is more than {HOPELESS:.0%} below the speedup to beat, {series.beaten_by:.4g}x over eager"
            for name, series in self.series.items()
            if series.beaten_by
        ]
        return {
            **{f"{name}_ms": series.candidate.median_ms for name, series in counted.items()},
            "baselines": {name: {**told, **self._times(name, counted)} for name, told in self.told.items()},
            "speedup": {name: series.speedups[EAGER].ratio for name, series in counted.items()} or None,
            "speedup_interval": {
                name: (series.speedups[EAGER].low, series.speedups[EAGER].high) for name, series in counted.items()
            },
            "samples": {name: self._samples(name) for name in self.series},
            "certified": {name: asdict(proof) for name, proof in self.certified.items()},
            "peak_bytes": self.peak_bytes,
            "message": "\n".join(notes),
        }

    def _times(self, baseline: str, counted: dict[str, Series]) -> dict[str, Any]:
        """Return a baseline's medians, and the speedups over it in the directions that count."""
        measured = {name: series for name, series in self.series.items() if baseline in series.latencies}
        found: dict[str, Any] = {
            f"{name}_ms": series.latencies[baseline].median_ms for name, series in measured.items()
        }
        if measured:
            found["speedup"] = {name: series.speedups[baseline] for name, series in measured.items() if name in counted}
        return found

    def _samples(self, direction: str) -> dict[str, Any]:
        """Return each side's samples, with an uncertified candidate's under another name.

        Nothing then mistakes those for a speed that counts.
        """
        names = {CANDIDATE: "uncertified"} if direction in self.reasons else {}
        return {names.get(name, name): vars(one) for name, one in self.series[direction].latencies.items()}


class SpeedTimer:
    """Times a candidate against its rivals. A context manager that releases the rivals' memory.

    Args:
        target: The candidate and its baselines.
        worker: The candidate's worker.
        clock: The seconds that the candidate may still use.
        baseline: The worker in which rivals run.
        stages: Stopwatch of the evaluation's stages.

    Attributes:
        is_upset: Whether the candidate's process may be of no further use.
    """

    def __init__(self, target: TimingTarget, worker: WorkerHandle, clock: Clock, baseline: Baseline, stages: Stopwatch):
        self.is_upset = False
        self._target = target
        self._baseline = baseline
        self._stages = stages
        self._mine = Side(worker, clock)
        self._own = {name: name for name in target.context.names}
        self._directions = directions_of(target.context, self._own)
        self._scene: Scene | None = None
        self._eager: Side | None = None
        self._series_taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, Exception):
            self._baseline.release()
        else:  # An interrupt does not wait for a compiler.
            self._baseline.close()

    def run(self) -> TimingResult:
        """Time the candidate against its rivals, and certify both it and eager.

        Raises:
            CandidateStopped: The candidate failed, or the judge's clock refutes its claims.
            BaselineError: A baseline failed.
        """
        target, context = self._target, self._target.context
        self._stages.enter("baselines")
        torch.cuda.empty_cache()
        asked(self._mine, DropSlots(), Released)  # What the trials left is memory that the rivals need.
        draw = replace(target.first, inputs=target.fresh_inputs(target.seed("first")))
        command = forward_command(context, draw, 0, "forward", differentiate=bool(context.leaves))
        del draw
        self._scene = Scene(
            target.problem,
            constants=target.constants,
            construct=replace(target.construct, own_args=False, init_args=context.exchange.args),
            descriptor=context.exchange.descriptor,
            forward=replace(
                command, state=tuple((name, context.exchange.state[name]) for name in self._own), buffers=()
            ),
            backward=self._directions[-1].backward[1],
        )
        rivals = self._baseline.rivals(self._scene, target.baselines)
        self._eager = rivals.sides[EAGER]
        asked(self._mine, command, Outputs)
        outcome = TimingResult(told=rivals.told)
        for direction in self._directions:
            try:
                self._time_fairly(direction, rivals, outcome)
            except ClockRuleBroken as stop:
                why = self._why_only_uncounted(stop)
                if not why:
                    raise
                outcome.series[direction.name] = stop.series
                outcome.reasons[direction.name] = f"{why}, and {stop.message}"
                outcome.audits += self._audits_of(stop, direction)
            if any(audit.failed for audit in outcome.audits):
                return outcome
        self._stages.enter("memory")
        outcome.peak_bytes = self._peak_bytes(rivals.sides[EAGER])
        return outcome

    def _why_only_uncounted(self, stop: ClockRuleBroken) -> str:
        """Return why a broken rule only voids that speed; empty if it ends the candidate."""
        others = self._target.conditions.other_users()
        if others or not self._target.context.exchange.integrity.tolerates(stop):
            return others
        return "the rule `clock` is not enforced"

    def again(self) -> dict[str, Series]:
        """Take another series of candidate and eager in each direction, after ``run``.

        Raises:
            CandidateStopped: The candidate failed.
            BaselineError: Eager failed.
        """
        assert self._eager is not None
        return {one.name: self._taken(one, [self._mine, self._eager]) for one in self._directions}

    def _time_fairly(self, direction: Direction, rivals: Rivals, outcome: TimingResult) -> None:
        """Take a series with a head start and certify it; repeat without the head start if refuted.

        A head start hides the time of launching from the series, but not from the windows. A
        candidate that is slow to launch would therefore be refuted.

        Raises:
            ClockRuleBroken: The judge's clock refutes the candidate's claims, or the device was busy while
                its rivals were timed.
            CandidateStopped: The candidate failed.
            BaselineError: A baseline failed.
        """
        self._target.conditions.begin()
        try:
            self._time(direction, rivals, outcome, gives_head_start=True)
        except ClockRuleBroken as stop:
            if not stop.series.head_start_us:
                raise
            self._time(direction, rivals, outcome, gives_head_start=False)

    def _audits_of(self, stop: ClockRuleBroken, direction: Direction) -> list[TrialResult]:
        """Return the audits of a refuted series: its times do not count, but its results do."""
        audit = stop.audit
        if audit is None:
            try:
                _, audit = self._certified(direction, stop.series)
            except ClockRuleBroken as again:
                audit = again.audit
            except Uncertified:
                return []
        return [] if audit is None else [audit]

    def _certified(self, direction: Direction, series: Series) -> tuple[Certificate, TrialResult]:
        """Certify a series with ``certification.certified``, with eager as the comparison."""
        assert self._eager is not None
        self._eager.take_up()
        # What calls of the series left, and slots that other rivals hold, are memory that the windows need.
        for side in (self._mine, self._eager):
            asked(side, DropSlots(), Released)
        return certified(self._target, direction, self._mine, self._eager, series)

    def _time(self, direction: Direction, rivals: Rivals, outcome: TimingResult, gives_head_start: bool) -> None:
        """Take a series and certify it.

        Raises:
            ClockRuleBroken: The judge's clock refutes the candidate's claims.
            CandidateStopped: The candidate failed.
            BaselineError: A baseline failed.
        """
        self._stages.enter("series")
        series = outcome.series[direction.name] = self._series(direction, rivals, gives_head_start)
        self._stages.enter("certificate")
        self._eager = rivals.sides[EAGER]
        try:
            outcome.add(direction.name, *self._certified(direction, series))
        except Uncertified as reason:
            outcome.reasons[direction.name] = str(reason)
            if reason.audit is not None:
                outcome.audits.append(reason.audit)

    def _series(self, direction: Direction, rivals: Rivals, gives_head_start: bool) -> Series:
        """Take the series of all sides; if a rival fails, leave it out and begin again.

        Raises:
            CandidateStopped: The candidate failed.
            BaselineError: Eager failed.
        """
        assert self._scene is not None
        while True:
            try:
                sides = [self._mine, *rivals.sides.values()]
                to_beat = self._target.to_beat if direction is self._directions[-1] else 0.0
                return self._taken(direction, sides, gives_head_start=gives_head_start, to_beat=to_beat)
            except BaselineError as error:
                if error.name == EAGER or error.name not in rivals.sides:
                    raise
                self._baseline.fail(rivals, self._scene, error.name, error)
                self._baseline.close()  # The worker may have ended, or be in any state.
                left = self._baseline.rivals(self._scene, list(rivals.sides))
                rivals.sides = left.sides
                rivals.told.update({name: {**rivals.told[name], **told} for name, told in left.told.items()})

    def _peak_bytes(self, eager: Side) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for direction in self._directions:
            for side, backward in zip((self._mine, eager), direction.backward, strict=True):
                told = asked(side, Weigh(backward), Weighed).peak_bytes
                if told is not None:
                    found.setdefault(direction.name, {})[side.name] = max(0, told)
        return found

    def short_calls(
        self, outcome: TimingResult, kernels: Mapping[str, Sequence[KernelUse]]
    ) -> dict[str, dict[str, dict[str, Any]]]:
        """Measure short calls without the time of launching and waiting.

        Args:
            outcome: The result of ``run``.
            kernels: The candidate's kernels by direction.

        Returns:
            Times by direction and mode. The modes are ``queued``; ``graph``, replayed and queued;
            and ``kernels``, by the profiler. Each has ``candidate_ms`` and ``eager_ms``, and
            ``overhead_ms`` of a call that launches one empty kernel; or it has ``failure``.
            ``synchronised`` has only ``overhead_ms``, which applies to all other series.

        Raises:
            CandidateStopped: The candidate makes impossible claims.
            BaselineError: A baseline failed.
        """
        assert self._eager is not None
        assert self._scene is not None
        short = [
            direction
            for direction in self._directions
            if direction.name not in outcome.reasons
            and not outcome.series[direction.name].beaten_by
            and max(side.median_ms for side in _of_both(outcome.series[direction.name])) < SHORT_MS
        ]
        if not short:
            return {}
        self._stages.enter("short calls")
        self._target.conditions.begin()
        traced = self._baseline.traced(self._scene)
        empty = self._baseline.empty(self._scene)
        found: dict[str, dict[str, dict[str, Any]]] = {direction.name: {} for direction in short}
        alone = self._quick(short[0], [empty]).latencies[empty.name].median_ms
        for direction in short:
            found[direction.name]["synchronised"] = {"overhead_ms": alone}
            found[direction.name]["kernels"] = _kernel_times(direction, kernels, traced)
        modes = [("queued", False), ("graph", True)]
        if known := self._baseline.failure(self._scene, "eager-graph"):
            modes.pop()
            for direction in short:
                found[direction.name]["graph"] = {"failure": f"eager: {known}"}
        for mode, is_replayed in modes:
            sides = [
                replace(side, head_start_us=FULL_HEAD_START_US, is_replayed=is_replayed)
                for side in (self._mine, self._eager, empty)
            ]
            for direction in short:
                try:
                    series = self._quick(direction, sides)
                except ClockRuleBroken as stop:
                    why = self._why_only_uncounted(stop)
                    if not why:
                        raise
                    found[direction.name][mode] = {"failure": f"{why}, and {stop.message}"}
                    continue
                except CandidateStopped as stop:
                    # A queued call is a call like any other.
                    if stop.status is Status.CHEATED or not is_replayed:
                        raise
                    self.is_upset = True
                    words = stop.message.partition("\n")[0]
                    found[direction.name][mode] = {"failure": shortened(words, MAX_FAILURE_CHARACTERS)}
                    return found
                except BaselineError as error:
                    if not is_replayed:
                        raise
                    words = self._baseline.remember(self._scene, "eager-graph", error)
                    found[direction.name][mode] = {"failure": f"eager: {words}"}
                    return found
                times = {f"{name}_ms": one.median_ms for name, one in series.latencies.items() if name != empty.name}
                found[direction.name][mode] = {**times, "overhead_ms": series.latencies[empty.name].median_ms}
        asked(self._mine, DropSlots(), Released)  # Graphs hold memory.
        return found

    def _quick(self, direction: Direction, sides: Sequence[Side]) -> Series:
        return self._taken(direction, sides, rounds=QUICK_ROUNDS)

    def _taken(
        self,
        direction: Direction,
        sides: Sequence[Side],
        rounds: int = MAX_ROUNDS,
        gives_head_start: bool = True,
        to_beat: float = 0.0,
    ) -> Series:
        """Take a series on inputs that no other series has."""
        target, exchange = self._target, self._target.context.exchange
        self._series_taken += 1
        part = f"{direction.name}:{self._series_taken}"

        def renew(number: int) -> Callable[[], object]:
            """Draw a round's inputs; the result writes them for one side, whatever the others did."""
            inputs = target.fresh_inputs(target.seed(part, number))
            return lambda: exchange.write_inputs(inputs)

        cotangents = cotangents_of(target, target.seed(part, "cotangents"), direction)
        for region, cotangent in zip(exchange.cotangents, cotangents, strict=False):
            exchange.write(region, cotangent)
        del cotangents
        mine, theirs = direction.backward
        # An empty launch has nothing to differentiate.
        backward = {CANDIDATE: mine, EMPTY.name: None}
        differentiating = [(side, backward.get(side.name, theirs)) for side in sides]
        choose = random.Random(target.seed(part))
        return measure(
            differentiating,
            renew,
            target.device,
            choose=choose,
            between=target.conditions.look,
            rounds=rounds,
            gives_head_start=gives_head_start,
            to_beat=to_beat,
        )


def _kernel_times(
    direction: Direction, kernels: Mapping[str, Sequence[KernelUse]], eager: Traced
) -> dict[str, float | None]:
    """Sum the profiler's times of one call's kernels, without launches, gaps and copies."""
    parts = ("forward", "backward") if direction.backward[0] is not None else ("forward",)
    mine = [use.device_ms for part in parts for use in kernels.get(part, ())]
    theirs = [one.device_ms for part in parts for one in getattr(eager, part) if not one.is_copy]
    return {f"{CANDIDATE}_ms": _sum(mine), f"{EAGER}_ms": _sum(theirs)}


def _of_both(series: Series) -> tuple[Latency, Latency]:
    return series.candidate, series.eager


def _sum(times: Sequence[float | None]) -> float | None:
    """Return the sum; None where nothing was seen."""
    return sum(time or 0.0 for time in times) or None
