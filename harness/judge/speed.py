"""Times a candidate that passed: its latencies beside its rivals', and what bounds them by the judge's own clock."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import torch

from harness.baselines import EAGER
from harness.judge.baseline import EMPTY, MAX_FAILURE_CHARACTERS, Baseline, BaselineError, Rivals, Scene
from harness.judge.comparison import Comparison, TrialResult, output_names
from harness.judge.draws import Draw, derive_seed, draw_inputs
from harness.judge.fitting import free_memory
from harness.judge.handle import CandidateStopped, Clock, WorkerHandle
from harness.judge.kinks import Settled
from harness.judge.loops import LEAST_ROUNDS, Call, Found, Likeness, Loops, Uncertified
from harness.judge.series import CANDIDATE, MAX_ROUNDS, Series, Side, asked, measure
from harness.judge.slots import Slots, bytes_of_call
from harness.judge.stages import Stages
from harness.judge.trial import Setting, backward_command, forward_command
from harness.problems import Problem, ProblemModule
from harness.records import KernelUse, Status
from harness.text import shortened
from harness.timing.certificate import Certificate, certificate
from harness.timing.statistics import Latency
from harness.wire.arena import dtype_named
from harness.wire.cuda_memory import DeviceMemoryError
from harness.wire.messages import (
    Backward,
    Construct,
    DropSlots,
    Loop,
    Outputs,
    Region,
    Released,
    Traced,
    Weigh,
    Weighed,
    input_key,
)

#: A short window has as many calls as take this long, within bounds.
WINDOW_MS = 8.0
MOST_CALLS = 64
#: Tensors in all slots: their descriptions must fit a message.
MOST_REGIONS = 16_000
#: Of the device's free memory the slots and what is kept of their results may take this share.
MEMORY_SHARE = 0.9
#: Calls that are shorter are also measured without what launching and waiting takes, in so many rounds.
SHORT_MS, QUICK_ROUNDS = 1.0, 10
#: Rounds of the second series, where the first left a claim outside its bound: noise goes away, a lie stays.
ROUNDS_OF_DOUBT = 7
#: Seconds that drawing the inputs of a short window may take.
DRAWING_S = 0.1
#: So many elements must be near eager's; where rounding may decide branches, fewer.
AGREEING_SHARE, FLIPPING_SHARE = 0.99, 0.5
#: The median deviation from eager may be so many times the tensor's budget, and this in any case.
MEDIAN_FACTOR, LEAST_MEDIAN = 16, 1e-5


@dataclass(frozen=True)
class Contest:
    """What is timed.

    Attributes:
        problem: The problem.
        module: Its body, run under the case.
        constants: The case's constants, encoded.
        setting: The case's setting, as in the trials.
        first: The first draw, whose state both sides get; its inputs are gone by now.
        construct: What made the candidate's instance.
        plain: The first draw's inputs, None in the place of tensors.
        device: The GPU.
        trial: Number of the first audited call in reports, after those of the trials.
        baselines: Names of the baselines, eager first.
        between: Called after each round of a series, to look at the device.
        budgets: The largest relative budget that each output and gradient had in the trials, by its name in reports;
            None for what is little but rounding: eager's and an honest candidate's have nothing in common.
    """

    problem: Problem
    module: ProblemModule
    constants: str
    setting: Setting
    first: Draw
    plain: Sequence[Any]
    construct: Construct
    device: torch.device
    trial: int
    baselines: tuple[str, ...]
    between: Callable[[], object]
    budgets: dict[str, float | None]

    def seed(self, *parts: object) -> int:
        """A seed for a purpose."""
        return derive_seed(self.setting.secret, "timing", *parts)

    def likeness(self, name: str) -> Likeness:
        """How near a result in a row must be to eager's."""
        budget = self.budgets.get(name)
        share = FLIPPING_SHARE if self.setting.kinks is not None else AGREEING_SHARE
        return Likeness(share, None if budget is None else max(LEAST_MEDIAN, MEDIAN_FACTOR * budget))

    def fresh_inputs(self, seed: int) -> list[Any]:
        """The inputs of one call: fresh tensors, and the plain values of the first draw."""
        drawn = draw_inputs(self.problem, self.module, seed, self.device)
        return [
            value if isinstance(value, torch.Tensor) else first for value, first in zip(drawn, self.plain, strict=True)
        ]


@dataclass(frozen=True)
class _Direction:
    """Forward, or forward with backward: what each side is asked for."""

    name: str
    backward: tuple[Backward | None, Backward | None]
    leaves: tuple[tuple[str, ...], tuple[str, ...]]
    results: dict[str, Region]


@dataclass
class Outcome:
    """What timing came to.

    Attributes:
        series: The latencies by direction, as events claim them.
        told: What is to be said of each baseline beside its times.
        certified: What the judge's clock proves, by direction.
        audits: The calls that were compared in full.
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
        """Take a certificate and the audit behind it in."""
        self.certified[direction] = proof
        self.audits.append(audit)

    def fields(self) -> dict[str, Any]:
        """The fields of a record: samples of all directions, but speed only where it is certified."""
        counted = {name: series for name, series in self.series.items() if name not in self.reasons}
        notes = [f"note: speed ({name}) is not certified and not counted: {why}" for name, why in self.reasons.items()]
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
        """A baseline's medians, and how many times as fast the candidate is where that counts."""
        measured = {name: series for name, series in self.series.items() if baseline in series.latencies}
        found: dict[str, Any] = {
            f"{name}_ms": series.latencies[baseline].median_ms for name, series in measured.items()
        }
        if measured:
            found["speedup"] = {name: series.speedups[baseline] for name, series in measured.items() if name in counted}
        return found

    def _samples(self, direction: str) -> dict[str, Any]:
        """Each side's samples; under another name those of a candidate whose speed is not counted, so that none are."""
        names = {CANDIDATE: "uncertified"} if direction in self.reasons else {}
        return {names.get(name, name): vars(one) for name, one in self.series[direction].latencies.items()}


class Timing:
    """Times a candidate against its rivals; a context, whose end gives the rivals' memory back.

    Args:
        contest: What is timed.
        worker: The candidate's.
        clock: The seconds it may still use.
        baseline: Where rivals run.
        stages: Told what is done.

    Attributes:
        is_upset: Whether the candidate's process may be of no further use.
    """

    def __init__(self, contest: Contest, worker: WorkerHandle, clock: Clock, baseline: Baseline, stages: Stages):
        self.is_upset = False
        self._contest = contest
        self._baseline = baseline
        self._stages = stages
        self._mine = Side(worker, clock)
        self._own = {name: name for name in contest.setting.names}
        self._directions = _directions(contest.setting, self._own)
        self._scene: Scene | None = None
        self._eager: Side | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, Exception):
            self._baseline.release()
        else:  # an interrupt does not wait for a compiler
            self._baseline.close()

    def run(self) -> Outcome:
        """Time the candidate against its rivals, and certify it and eager.

        Raises:
            CandidateStopped: The candidate failed, or claims what the judge's clock refutes.
            BaselineError: A baseline failed.
        """
        contest, setting = self._contest, self._contest.setting
        self._stages.enter("baselines")
        torch.cuda.empty_cache()
        draw = replace(contest.first, inputs=contest.fresh_inputs(contest.seed("first")))
        command = forward_command(setting, draw, 0, "forward", bool(setting.leaves))
        del draw
        self._scene = Scene(
            contest.problem,
            contest.constants,
            replace(contest.construct, own_args=False, init_args=setting.exchange.args),
            setting.exchange.descriptor,
            replace(command, state=tuple((name, setting.exchange.state[name]) for name in self._own)),
            self._directions[-1].backward[1],
        )
        rivals = self._baseline.rivals(self._scene, contest.baselines)
        asked(self._mine, command, Outputs)
        outcome = Outcome(told=rivals.told)
        for direction in self._directions:
            self._stages.enter("series")
            series = outcome.series[direction.name] = self._series(direction, rivals)
            self._stages.enter("certificate")
            eager = self._eager = rivals.sides[EAGER]
            eager.take_up()
            asked(eager, DropSlots(), Released)  # what other rivals hold is room for the windows
            try:
                outcome.add(direction.name, *_certified(contest, direction, self._mine, eager, series))
            except Uncertified as reason:
                outcome.reasons[direction.name] = str(reason)
            if any(audit.failed for audit in outcome.audits):
                return outcome
        self._stages.enter("memory")
        outcome.peak_bytes = self._peak_bytes(eager)
        return outcome

    def _series(self, direction: _Direction, rivals: Rivals) -> Series:
        """The series of all sides; a rival that fails now is left out, and the series begins again.

        Raises:
            CandidateStopped: The candidate failed.
            BaselineError: Eager did.
        """
        assert self._scene is not None
        while True:
            try:
                return _series(self._contest, direction, [self._mine, *rivals.sides.values()])
            except BaselineError as error:
                if error.name == EAGER or error.name not in rivals.sides:
                    raise
                self._baseline.fail(rivals, self._scene, error.name, error)
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
        self, outcome: Outcome, kernels: Mapping[str, Sequence[KernelUse]]
    ) -> dict[str, dict[str, dict[str, Any]]]:
        """For directions in which a call is short: what is left when launching and waiting are taken out of it.

        Args:
            outcome: What ``run`` returned.
            kernels: The candidate's kernels by direction.

        Returns:
            By direction and mode (``queued``; ``graph``, replayed and queued; ``kernels``, by the profiler)
            ``candidate_ms`` and ``eager_ms``, and ``overhead_ms`` of a call that launches one empty kernel; or
            ``failure``. ``synchronised`` has the last one alone: all other series are taken so.

        Raises:
            CandidateStopped: The candidate claims what cannot be.
            BaselineError: A baseline failed.
        """
        assert self._eager is not None
        assert self._scene is not None
        short = [
            direction
            for direction in self._directions
            if direction.name not in outcome.reasons
            and max(side.median_ms for side in _of_both(outcome.series[direction.name])) < SHORT_MS
        ]
        if not short:
            return {}
        self._stages.enter("short calls")
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
                replace(side, is_queued=True, is_replayed=is_replayed) for side in (self._mine, self._eager, empty)
            ]
            for direction in short:
                try:
                    series = self._quick(direction, sides)
                except CandidateStopped as stop:
                    if stop.status is Status.CHEATED or not is_replayed:  # a queued call is a call like any other
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
        asked(self._mine, DropSlots(), Released)  # graphs hold memory
        return found

    def _quick(self, direction: _Direction, sides: Sequence[Side]) -> Series:
        return _series(self._contest, direction, sides, rounds=QUICK_ROUNDS)


def _kernel_times(
    direction: _Direction, kernels: Mapping[str, Sequence[KernelUse]], eager: Traced
) -> dict[str, float | None]:
    """How long the kernels of one call run, by the profiler, launches and gaps and copies not counted."""
    parts = ("forward", "backward") if direction.backward[0] is not None else ("forward",)
    mine = [use.device_ms for part in parts for use in kernels.get(part, ())]
    theirs = [one.device_ms for part in parts for one in getattr(eager, part) if not one.is_copy]
    return {f"{CANDIDATE}_ms": _sum(mine), f"{EAGER}_ms": _sum(theirs)}


def _of_both(series: Series) -> tuple[Latency, Latency]:
    return series.candidate, series.eager


def _sum(times: Sequence[float | None]) -> float | None:
    """The sum; None where nothing was seen."""
    return sum(time or 0.0 for time in times) or None


def _directions(setting: Setting, own: dict[str, str]) -> list[_Direction]:
    exchange = setting.exchange
    outputs = dict(zip(output_names(len(exchange.outputs)), exchange.outputs, strict=True))
    found = [_Direction("forward", (None, None), ((), ()), outputs)]
    if setting.leaves:
        settings = setting, replace(setting, names=own)
        positions = {name: position for position, name in exchange.input_names.items()}
        leaves = tuple(
            tuple(input_key(positions[name]) if name in positions else one.names[name] for name in setting.leaves)
            for one in settings
        )
        found.append(
            _Direction(
                "forward_backward",
                (backward_command(settings[0]), backward_command(settings[1])),
                (leaves[0], leaves[1]),
                {name: exchange.gradients[name] for name in setting.leaves},
            )
        )
    return found


def _series(contest: Contest, direction: _Direction, sides: Sequence[Side], rounds: int = MAX_ROUNDS) -> Series:
    exchange = contest.setting.exchange

    def renew(number: int) -> Callable[[], object]:
        """Draw a round's inputs; each side has them written anew, whatever the others did to them."""
        inputs = contest.fresh_inputs(contest.seed(direction.name, number))
        return lambda: exchange.write_inputs(inputs)

    cotangents = _cotangents(contest, contest.seed(direction.name, "cotangents"), direction)
    for region, cotangent in zip(exchange.cotangents, cotangents, strict=False):
        exchange.write(region, cotangent)
    del cotangents
    mine, theirs = direction.backward
    # An empty launch has nothing to differentiate.
    backward = {CANDIDATE: mine, EMPTY.name: None}
    differentiating = [(side, backward.get(side.name, theirs)) for side in sides]
    choose = random.Random(contest.seed(direction.name))
    return measure(differentiating, renew, contest.device, choose, contest.between, rounds)


def _cotangents(contest: Contest, seed: int, direction: _Direction) -> list[torch.Tensor]:
    """What a call differentiates with: standard normal values; none in a forward."""
    if direction.backward[0] is None:
        return []
    generator = torch.Generator(contest.device).manual_seed(seed)
    return [
        torch.randn(region.shape, generator=generator, device=contest.device).to(dtype_named(region.dtype))
        for region in contest.setting.exchange.cotangents
    ]


def _calls(contest: Contest, direction: _Direction, series: Series) -> int:
    """Calls in a short window: enough for the clock, and as many as can be drawn and held; 0 where not even one can."""
    exchange = contest.setting.exchange
    inputs, results = ([region for _, region in exchange.tensor_inputs], list(direction.results.values()))
    given = [*inputs, *(exchange.cotangents if direction.backward[0] is not None else ())]
    # Two sets of results are held, and as much again as a call is given while it is drawn.
    free = free_memory(contest.device) * MEMORY_SHARE - bytes_of_call([*results, *results, *given])
    slots = free // max(1, bytes_of_call([*given, *results])) + 1  # the first lies in the trials' arena
    slots = min(slots, MOST_REGIONS // (len(given) + len(results)))
    started = time.monotonic()
    contest.fresh_inputs(contest.seed("how long"))
    drawing_s = max(time.monotonic() - started, 1e-6)
    call_ms = min(series.eager.median_ms, series.candidate.window_ms)  # neither is the candidate's word
    wanted = min(math.ceil(WINDOW_MS / call_ms), math.ceil(DRAWING_S / drawing_s), MOST_CALLS)
    return int(min(max(1, wanted), slots // 2))


def _certified(
    contest: Contest, direction: _Direction, mine: Side, eager: Side, series: Series
) -> tuple[Certificate, TrialResult]:
    """What the windows prove of a direction, and what the audited call came to.

    Raises:
        CandidateStopped: The candidate's claims are below that, also in a second series (rule ``clock``).
        Uncertified: Memory does not do for windows, or they prove nothing.
    """
    try:
        torch.cuda.empty_cache()
        calls = _calls(contest, direction, series)
        if not calls:
            raise Uncertified("the device's memory does not do for calls in a row")
        exchange = contest.setting.exchange
        cotangents = exchange.cotangents if direction.backward[0] is not None else ()
        results = tuple(direction.results.values())
        with contextlib.closing(Slots(exchange, results, cotangents, 2 * calls, contest.device)) as slots:
            proof, found = _proven(contest, direction, (mine, eager), series, slots, calls)
        return proof, _compared(contest, direction, found)
    except (torch.OutOfMemoryError, DeviceMemoryError):  # the judge's own: the verdict stands without
        raise Uncertified("the device's memory does not do for calls in a row") from None
    finally:
        for side in (mine, eager):  # whatever happened: a side that lives gives the slots back
            if not side.worker.is_closed:
                with contextlib.suppress(CandidateStopped, BaselineError):
                    asked(side, DropSlots(), Released)


def _proven(
    contest: Contest, direction: _Direction, sides: tuple[Side, Side], series: Series, slots: Slots, calls: int
) -> tuple[Certificate, Found]:
    """A certificate that the candidate's claims agree with, of the first series or of a longer one."""
    commands = [Loop((), leaves, False) for leaves in direction.leaves]
    likeness = [contest.likeness(name) for name in direction.results]
    claims = series.candidate.median_ms, series.eager.median_ms

    def fresh(seed: int, in_full: bool) -> Call:
        inputs = contest.fresh_inputs(derive_seed(str(seed), "inputs"))
        cotangents = _cotangents(contest, derive_seed(str(seed), "cotangents"), direction)
        if not in_full:
            return Call(inputs, cotangents, seed)
        drawn: Draw | Settled = replace(contest.first, inputs=inputs)
        if contest.setting.kinks is not None:
            drawn = contest.setting.kinks.settle(replace(contest.first, inputs=inputs), derive_seed(str(seed), "draws"))
            inputs = drawn.draw.inputs
        return Call(inputs, cotangents, seed, drawn)

    for least_rounds in (LEAST_ROUNDS, ROUNDS_OF_DOUBT):
        secret = f"{contest.setting.secret}:{direction.name}:{least_rounds}"
        loops = Loops(sides, (commands[0], commands[1]), slots, calls, fresh, likeness, secret)
        found = loops.run(least_rounds)
        proof = certificate(found.candidate, found.eager, found.storing)
        if proof.accepts(*claims):
            return proof, found
    raise CandidateStopped(
        Status.CHEATED,
        f"the worker claims {claims[0]:.4g} ms for a call ({direction.name}), but by the judge's clock {calls} more "
        f"calls took {found.candidate.slope_ms * calls:.4g} ms more: at least {proof.at_least_ms:.4g} ms each",
        rule="clock",
    )


def _compared(contest: Contest, direction: _Direction, found: Found) -> TrialResult:
    """The audited call against the exact reference.

    Raises:
        Uncertified: It is wrong, but the reference has a state that earlier calls may have changed.
    """
    setting, drawn, seed = contest.setting, found.audited.drawn, found.audited.seed
    draw, settled = (drawn.draw, drawn) if isinstance(drawn, Settled) else (drawn, None)
    comparison = Comparison(setting.reference, draw, seed, setting.leaves, setting.precision, contest.trial, settled)
    if direction.backward[0] is None:
        comparison.add_outputs(found.results)
    else:
        # What the judge has drawn, not what lies in the arena, where the candidate can write.
        gradients = dict(zip(setting.leaves, found.results, strict=True))
        comparison.add_gradients("normal", found.audited.cotangents, gradients)
    result = comparison.result()
    if result.failed and any(True for _ in contest.first.model.buffers()):
        raise Uncertified("the reference has buffers, which earlier calls may have changed")
    return result
