"""Compares what a candidate returned in one trial with the reference and writes the reports.

Where memory is short, the exact evaluation comes in pieces of the batch. Deviations are sums over
slices of dimension 0, so the sums of the pieces join without loss.

Budgets depend on gauges: the errors of other evaluations of the reference, such as eager's. The
judge measures them once for each draw. The candidates of a batch get the same draws and share the
gauges.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness.errors import ProblemError
from harness.judge.compare.error_pattern import ErrorPattern, look, summary, worst_index
from harness.judge.inputs.buffers import PREFIX
from harness.judge.inputs.draws import Draw
from harness.judge.inputs.situations import Usage
from harness.judge.reference.equivalence import (
    FLOORS,
    MAX_FACTOR,
    NO_ERROR,
    NUDGED_FACTOR,
    RELAXED,
    Allowance,
    Errors,
    LeastBudget,
    Slices,
    allowed,
    beyond,
    deviation,
    joined,
    judge,
    relative,
)
from harness.judge.reference.kinks import Settled, explained_by, moved_runs
from harness.judge.reference.reduced_precision import WAYS, Rounding, mantissa_bits, operands_floors
from harness.judge.reference.reference import Graph, Reference, input_names
from harness.judge.reference.reference_errors import OWN_OUTPUT, Deviations, Gauge, Gauges, Parts, real, rows_of
from harness.records.record import PrecisionClass, TensorReport
from harness.wire.arena import dtype_name
from harness.wire.structure import paths_of

#: Message for a reference whose outputs' form depends on their values.
FORMS_CHANGE = "the number or shapes of the reference's outputs change from draw to draw"
#: The judge examines a piece whose errors reach this share of the budget. It is below 1 because the
#: budget of the whole tensor may be a little tighter than that of the piece.
WORTH_A_LOOK = 0.5
#: From this L2 error on, the judge does not ask whether a lower precision class explains the error.
GROSS = 2.0**-4


@dataclass
class TrialResult:
    """The findings of one trial.

    Attributes:
        pieces: Number of pieces of the batch in which the reference was evaluated.
        kinks: Counts of samples ``redrawn`` and of elements ``remaining`` near a kink. Empty where
            the reference has no kinks.
        outputs: One report per output.
        gradients: One report per leaf that the reference differentiates.
        lower_class: For a failing tensor, the lower precision class that accounts for its error.
        usage: How the judge called the candidate.
        is_unsteady: Whether the trial failed but passed when repeated, whatever the order of
            threads.
        digests: Digests of the candidate's inputs and results, by name (see ``exchange.digests``).
    """

    pieces: int = 1
    kinks: dict[str, int] = field(default_factory=dict)
    outputs: list[TensorReport] = field(default_factory=list)
    gradients: list[TensorReport] = field(default_factory=list)
    lower_class: dict[str, PrecisionClass] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    is_unsteady: bool = False
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> list[TensorReport]:
        """The failing reports, outputs first."""
        return [report for report in (*self.outputs, *self.gradients) if not report.ok]


@dataclass(frozen=True)
class ReceivedGradients:
    """A candidate's gradients under one cotangent.

    Attributes:
        name: The cotangent's name, for reports.
        cotangent: One tensor per output.
        gradients: The candidate's gradients (private copies) by leaf. A string in place of a tensor
            says what is wrong with that gradient.
    """

    name: str
    cotangent: Sequence[torch.Tensor]
    gradients: Mapping[str, torch.Tensor | str]

    @property
    def bytes(self) -> int:
        """Memory that another answer of this form takes, in bytes."""
        tensors = (*self.cotangent, *(one for one in self.gradients.values() if isinstance(one, torch.Tensor)))
        return sum(min(tensor.nbytes, tensor.untyped_storage().nbytes()) for tensor in tensors)


@dataclass
class _Judged:
    """The record of one tensor while its deviations come in.

    Attributes:
        shape: Shape of the candidate's tensor.
        dtype: Name of its dtype; empty where the candidate gave no tensor.
        scale: Largest magnitude of the exact tensor over the cotangents so far.
        received: The candidate's deviation and the error patterns of suspicious pieces, by
            cotangent ("" for an output).
        note: What is wrong with the tensor's form, and the cotangent under which it is.
    """

    shape: tuple[int, ...]
    dtype: str
    scale: Slices | None = None
    received: dict[str, tuple[Slices, list[ErrorPattern]]] = field(default_factory=dict)
    note: tuple[str, str] | None = None


@dataclass
class _Tally:
    """The outputs, or the gradients under one cotangent, while the pieces come in.

    Attributes:
        name: The cotangent's name; "" for the outputs.
        mine: The candidate's tensors by name.
        judged: The records to which the sums go.
        reference: The exact evaluation under the candidate's cotangent.
        gauged: The evaluations from which the gauge of this name is made. None where the gauge is
            known.
        received: The candidate's deviations by tensor, one per piece.
        looks: Error patterns of the pieces beyond their budget, by tensor.
    """

    name: str
    mine: Mapping[str, torch.Tensor]
    judged: dict[str, _Judged]
    reference: Deviations
    gauged: Deviations | None
    received: dict[str, Parts] = field(default_factory=dict)
    looks: dict[str, list[ErrorPattern]] = field(default_factory=dict)

    @property
    def gauging(self) -> list[Deviations]:
        """The deviations that need the exact evaluation of each piece."""
        return [self.reference] if self.gauged in (None, self.reference) else [self.reference, self.gauged]


class _Measured:
    """The magnitude of one tensor, and the errors of the reference's other evaluations of it.

    Args:
        gauges: Gauges by the cotangent's name, "" for an output.
        name: The tensor's name.

    Attributes:
        scale: The exact tensor's magnitude, the largest over the cotangents.
        explained: What branch flips at kinks change, by cotangent. Empty where there are no kinks.
        eager: Deviations of the eager runs by cotangent, less what flips change. Flips must not
            widen the budget eightfold.
    """

    def __init__(self, gauges: Mapping[str, Gauge], name: str):
        self._gauges = {cotangent: gauge for cotangent, gauge in gauges.items() if name in gauge.scale}
        self._name = name
        first, *others = (gauge.scale[name] for gauge in self._gauges.values())
        self.scale = first
        for other in others:
            self.scale = self.scale.larger(other)
        moved = {cotangent: gauge.of("moved", name) for cotangent, gauge in self._gauges.items()}
        self.explained = {cotangent: explained_by(runs) for cotangent, runs in moved.items() if runs}
        self.eager = [
            [_unexplained(run, self.explained.get(cotangent)) for run in runs]
            for cotangent, gauge in self._gauges.items()
            if (runs := gauge.of("eager", name))
        ]

    @functools.cached_property
    def yardstick(self) -> Errors:
        """Eager's errors, of which the budget is a multiple."""
        return _yardstick(self.eager, self.scale)

    def effects(self, cotangent: str) -> list[Errors]:
        """Returns what rounding the operands of products changes; empty in the class fp32."""
        # A run that overflows counts as no error, as an eager run does: it must not widen the
        # budget.
        gauge = self._gauges.get(cotangent)
        runs = [] if gauge is None else gauge.of("rounded", self._name)
        return [_finite(relative(run, self.scale)) for run in runs]


class Comparison:
    """Compares a candidate's results with the reference in one trial.

    Args:
        reference: Evaluates the reference.
        draw: The trial's draw.
        seed: Seed of the random numbers that a forward draws.
        leaves: The leaves whose gradients are judged.
        precision: The precision class whose budgets apply.
        trial: The trial's number, for reports.
        settled: How the draw was moved away from kinks. None where the reference has none.
        is_relaxed: Whether ``--precision relaxed`` applies: no budget is below its tolerances.
        gauges: Known gauges of this draw. The comparison adds those that it measures.
        gauges_at_need: Measure gauges only where an error exceeds the least budget of the class. No
            budget is below that one, so the verdicts are the same. The lower classes always measure
            gauges.
    """

    def __init__(
        self,
        reference: Reference,
        draw: Draw,
        seed: int,
        leaves: Sequence[str],
        precision: PrecisionClass,
        trial: int,
        settled: Settled | None = None,
        is_relaxed: bool = False,
        gauges: Gauges | None = None,
        gauges_at_need: bool = False,
    ):
        self._gauges: Gauges = {} if gauges is None else gauges
        #: Magnitudes under the cotangents for which the least budgets sufficed.
        self._scales: Gauges = {}
        self._reference = reference
        self._draw = draw
        self._seed = seed
        self._leaves = leaves
        self._precision = precision
        self._trial = trial
        self._is_relaxed = is_relaxed
        self._exact = reference.exact(draw, seed)
        self._bits = mantissa_bits(precision)
        self._gauges_at_need = gauges_at_need and self._bits is None
        self._inputs = set(input_names(draw).values())
        self._outputs: dict[str, _Judged] = {}
        self._gradients: dict[str, _Judged] = {}
        self._settled = settled
        self._wrong: dict[tuple[str, str], Errors] = {}
        self._result = TrialResult(len(self._exact.pieces), {} if settled is None else settled.counts)

    def add(
        self,
        outputs: Sequence[torch.Tensor] | None,
        answers: Sequence[ReceivedGradients] = (),
        buffers: Mapping[str, torch.Tensor] = MappingProxyType({}),
    ) -> None:
        """Compare the candidate's results, all of them with the same evaluations of the reference.

        Args:
            outputs: The candidate's outputs (private copies). None where outputs are not judged
                here.
            answers: The candidate's gradients, one entry for each cotangent.
            buffers: The candidate's buffers that are judged, by the reference's names. They count
                as outputs.

        Raises:
            ProblemError: The reference does not run.
        """
        tallies = self._added(outputs, answers, buffers, not self._gauges_at_need)
        if self._gauges_at_need and not self._are_fine(tallies):
            for tally in tallies:
                del self._scales[tally.name]
            self._added(outputs, answers, buffers, True)

    def _are_fine(self, tallies: Sequence[_Tally]) -> bool:
        """Return whether every tensor in these tallies is within its budget."""
        judged = {id(tally.judged): tally.judged for tally in tallies}
        reports = (
            self._report(name, one)
            for by_name in judged.values()
            for name, one in by_name.items()
            if one.received and one.scale is not None
        )
        return all(report.ok for report in reports)

    def _added(
        self,
        outputs: Sequence[torch.Tensor] | None,
        answers: Sequence[ReceivedGradients],
        buffers: Mapping[str, torch.Tensor],
        with_gauges: bool,
    ) -> list[_Tally]:
        """Compare and book the arguments of ``add``.

        With ``with_gauges`` it also measures the reference's other evaluations.
        """
        tallies = [self._tally_of_gradients(answer, with_gauges) for answer in answers]
        for place, piece in enumerate(self._exact.pieces):
            graph = self._exact.graph(piece)
            if outputs is not None:
                _check_forms(graph.outputs, [rows_of(tensor, piece) for tensor in outputs])
                if any(output.is_complex() for output in graph.outputs):
                    raise ProblemError("the reference returns complex numbers, which cannot be judged yet")
                if place == 0:
                    names = paths_of(graph.structure)
                    tallies.insert(0, self._tally_of_outputs(names, outputs, buffers, with_gauges))
            for tally in tallies:
                for deviations in tally.gauging:
                    deviations.begin(graph, piece)
                self._add(tally, piece)
            unknown = [tally.gauged for tally in tallies if tally.gauged is not None]
            if unknown:
                forms = [output.shape for output in graph.outputs]
                del graph
                self._gauge(unknown, piece, forms)
            else:
                del graph
            if with_gauges:
                self._examine(tallies, piece)
        for tally in tallies:
            for deviations in tally.gauging:
                deviations.begin_totals()
            self._add(tally, None)
            if tally.gauged is not None:
                tally.gauged.add_totals()
        if with_gauges:
            self._examine(tallies, None)
        for tally in tallies:
            self._book(tally, with_gauges)
        return tallies

    def _gauge(self, unknown: Sequence[Deviations], piece: slice | None, forms: Sequence[torch.Size]) -> None:
        """Add the other evaluations of a piece to the gauges.

        Raises:
            ProblemError: One of them has another form than the exact evaluation.
        """
        for kind, number, other, order, mode in self._others(piece):
            if [output.shape for output in other.outputs] != forms:
                raise ProblemError(FORMS_CHANGE)
            for deviations in unknown:
                with mode:
                    found = deviations.found(kind, number, other, order)
                deviations.book(kind, number, found)
            del other

    def _tally_of_outputs(
        self,
        names: Sequence[str],
        outputs: Sequence[torch.Tensor],
        buffers: Mapping[str, torch.Tensor],
        with_gauges: bool,
    ) -> _Tally:
        received = dict(zip(names, outputs, strict=True)) | {PREFIX + name: one for name, one in buffers.items()}
        for name, tensor in received.items():
            self._outputs[name] = _Judged(tuple(tensor.shape), dtype_name(tensor.dtype))
        known = self._gauges.get("")
        reference = Deviations(received, frozenset(received), known=known)
        return _Tally("", received, self._outputs, reference, reference if known is None and with_gauges else None)

    def _tally_of_gradients(self, answer: ReceivedGradients, with_gauges: bool) -> _Tally:
        for name in self._leaves:
            value = answer.gradients[name]
            shape, dtype = ((), "") if isinstance(value, str) else (tuple(value.shape), dtype_name(value.dtype))
            judged = self._gradients.setdefault(name, _Judged(shape, dtype))
            if isinstance(value, str) and judged.note is None:
                judged.note = (value, answer.name)
        tensors = {name: value for name, value in answer.gradients.items() if isinstance(value, torch.Tensor)}
        inputs = frozenset(name for name in self._leaves if name in self._inputs)
        known = self._gauges.get(answer.name)
        is_own = answer.name == OWN_OUTPUT
        reference = Deviations(self._leaves, inputs, answer.cotangent, known=None if is_own else known)
        gauged: Deviations | None = None
        if known is None and with_gauges:
            dtypes = [one.dtype for one in answer.cotangent]
            gauged = Deviations(self._leaves, inputs, own_output=dtypes) if is_own else reference
        return _Tally(answer.name, tensors, self._gradients, reference, gauged)

    def result(self, answers: Sequence[ReceivedGradients] | None = None) -> TrialResult:
        """Return the reports on everything that was added.

        Args:
            answers: The candidate's gradients, where still in memory. With them the judge names the
                lower class of a failing tensor by what rounding operands to that class changes.
                With None it only has the size of the error.

        Raises:
            ProblemError: The reference does not run.
        """
        for name, judged in self._outputs.items():
            self._result.outputs.append(self._report(name, judged))
        for name, judged in self._gradients.items():
            self._result.gradients.append(self._report(name, judged))
        self._result.lower_class = self._lower_classes(answers)
        return self._result

    def _lower_classes(self, answers: Sequence[ReceivedGradients] | None) -> dict[str, PrecisionClass]:
        """Return the lower precision class that accounts for each failing tensor's error, by name."""
        keys = ((report.name, report.cotangent or "") for report in self._result.failed)
        wrong = {key: self._wrong[key] for key in keys if key in self._wrong and self._wrong[key].l2 < GROSS}
        # Rounding cut operands again would change less than the lower class really does.
        if not wrong or self._draw.bits is not None:
            return {}
        lower = [other for other in PrecisionClass if FLOORS[other].l2 > FLOORS[self._precision].l2]
        effects = {} if answers is None else self._effects(lower, answers)
        classes = {}
        for (name, cotangent), errors in wrong.items():
            measured = [(other, effects.get((other, name, cotangent), [])) for other in lower]
            by_effect = [
                other
                for other, changes in measured
                if any(map(any, changes)) and judge(errors, NO_ERROR, *operands_floors(changes)).ok
            ]
            by_size = [other for other in lower if judge(errors, NO_ERROR, FLOORS[other]).ok]
            if by_effect or by_size:
                classes[name] = (by_effect or by_size)[0]
        return classes

    def _effects(
        self, lower: Sequence[PrecisionClass], answers: Sequence[ReceivedGradients]
    ) -> dict[tuple[PrecisionClass, str, str], list[Errors]]:
        """Measure what rounding operands to lower classes changes, by class, tensor and cotangent."""
        ways = [(other, bits, way) for other in lower if (bits := mantissa_bits(other)) for way, _ in WAYS]
        inputs = frozenset(name for name in self._leaves if name in self._inputs)
        sought = {"": Deviations(self._outputs, frozenset(self._outputs))}
        sought |= {answer.name: Deviations(self._leaves, inputs, answer.cotangent) for answer in answers}
        for piece in self._exact.pieces:
            graph = self._exact.graph(piece)
            for deviations in sought.values():
                deviations.begin(graph, piece)
            del graph
            for number, (_, bits, to_nearest) in enumerate(ways):
                mode = Rounding(bits, to_nearest)
                graph = self._rounded(mode, piece)
                for deviations in sought.values():
                    with mode:
                        found = deviations.found("rounded", number, graph)
                    deviations.book("rounded", number, found)
                del graph
        effects: dict[tuple[PrecisionClass, str, str], list[Errors]] = {}
        for cotangent, deviations in sought.items():
            deviations.begin_totals()
            deviations.add_totals()
            for name, runs in deviations.whole.runs["rounded"].items():
                scale = (self._gradients if cotangent else self._outputs)[name].scale
                for (other, _, _), run in zip(ways, runs, strict=True):
                    if scale is not None:
                        effects.setdefault((other, name, cotangent), []).append(_finite(relative(run, scale)))
        return effects

    def of_other_outputs(self, outputs: Sequence[torch.Tensor]) -> list[TensorReport]:
        """Judge other outputs with the same gauges; only the exact evaluation runs again.

        Args:
            outputs: Outputs of the same form as those added before.

        Raises:
            ProblemError: The reference does not run.
        """
        judged = {name: replace(one, received={}) for name, one in self._outputs.items()}
        reference = Deviations(judged, frozenset(judged))
        tally = _Tally("", dict(zip(judged, outputs, strict=True)), judged, reference, None)
        for piece in self._exact.pieces:
            reference.begin(self._exact.graph(piece), piece)
            self._add(tally, piece)
        self._book(tally, True)
        return [self._report(name, one) for name, one in judged.items()]

    def _others(
        self, piece: slice | None
    ) -> Iterator[tuple[str, int, Graph, torch.Tensor | None, contextlib.AbstractContextManager[object]]]:
        """Yield the other evaluations of a piece: kind, number, graph, sample order, backward mode.

        There are three kinds. ``eager`` runs come first. Where elements lie near kinks, ``moved``
        runs are exact evaluations with those elements on the other side. In the lower classes
        ``rounded`` runs are exact but for the rounded operands of products. Their backward must run
        within the mode.
        """
        plain = contextlib.nullcontext()
        for number, (graph, order) in enumerate(self._reference.eager_runs(self._draw, self._seed, piece)):
            yield "eager", number, graph, order, plain
            del graph  # before the next one is made
        if self._settled is not None and self._settled.remaining:
            for number, graph in enumerate(moved_runs(self._reference, self._settled, self._seed, piece)):
                yield "moved", number, graph, None, plain
                del graph
        if self._bits is not None:
            for number, (to_nearest, _) in enumerate(WAYS):
                mode = Rounding(self._bits, to_nearest)
                yield "rounded", number, self._rounded(mode, piece), None, mode

    def _rounded(self, mode: Rounding, piece: slice | None) -> Graph:
        # Other attention backends hide the products of attention inside one operator.
        with sdpa_kernel(SDPBackend.MATH):
            return self._reference.run(self._draw, self._seed, torch.float64, piece, mode)

    def _add(self, tally: _Tally, piece: slice | None) -> None:
        """Add the candidate's deviations in a piece."""
        for name, expected in tally.reference.exact.items():
            if name in tally.mine:
                mine = rows_of(tally.mine[name], piece)
                is_floating = expected.is_floating_point()
                part = deviation(real(mine), expected.to(torch.float64)) if is_floating else _inequality(mine, expected)
                tally.received.setdefault(name, []).append(part)

    def _examine(self, tallies: Sequence[_Tally], piece: slice | None) -> None:
        """Describe the tensors that are beyond their budget in a piece.

        It runs after the other evaluations of the piece, which decide the budgets.
        """
        worst: dict[tuple[str, str], tuple[int, ...]] = {}
        allowances: dict[tuple[str, str], Allowance] = {}
        for tally in tallies:
            for name in tally.reference.exact.keys() & tally.mine.keys():
                allowance = self._allowance(tally, tallies, name, piece)
                if allowance is None:
                    continue
                received, exact = self._compared(tally, name, piece)
                at = worst_index(received, exact, tally.received[name][-1], allowance.maximum)
                allowances[tally.name, name], worst[tally.name, name] = allowance, at
        eager = self._eager_at(tallies, worst, piece)
        for tally in tallies:
            for (cotangent, name), at in worst.items():
                if cotangent == tally.name:
                    key, first_row = (cotangent, name), None if piece is None else piece.start
                    seen = look(*self._compared(tally, name, piece), allowances[key], at, eager.get(key), first_row)
                    tally.looks.setdefault(name, []).append(seen)

    @staticmethod
    def _compared(tally: _Tally, name: str, piece: slice | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the candidate's tensor, as floating numbers, and the exact one in float64."""
        return real(rows_of(tally.mine[name], piece)), tally.reference.exact[name].to(torch.float64)

    def _eager_at(
        self, tallies: Sequence[_Tally], worst: Mapping[tuple[str, str], tuple[int, ...]], piece: slice | None
    ) -> dict[tuple[str, str], float]:
        """Return eager's values at the worst elements, by cotangent and name; runs eager once more."""
        if not worst:
            return {}
        found: dict[tuple[str, str], float] = {}
        totals: dict[tuple[str, str], torch.Tensor] = {}
        for part in [piece] if piece is not None else self._exact.pieces:
            graph = self._reference.run(self._draw, self._seed, None, part)
            for tally in tallies:
                for name, tensor in tally.reference.at_hand(graph, part).items():
                    key = tally.name, name
                    if key in worst:
                        totals[key] = totals[key] + tensor if key in totals else tensor
            del graph
        for key, tensor in totals.items():
            found[key] = float(tensor[worst[key]])
        return found

    def _allowance(self, tally: _Tally, tallies: Sequence[_Tally], name: str, piece: slice | None) -> Allowance | None:
        """Return what the budgets allow each element of a piece; None where it is well within them."""
        judged = tally.judged[name]
        error, scale = tally.received[name][-1], _scale(tally, tallies, name, piece)
        if not _is_floating(judged.dtype):
            equal = torch.zeros_like(error.maximum)
            return Allowance(equal, equal) if bool((error.maximum > 0).any()) else None
        least = self._floors("float32", [])
        if judge(relative(error, scale), NO_ERROR, *least).ok:
            return None
        of_piece = {
            other.name: self._gauges[other.name].rows(piece, [name]) if other.gauged is None else other.gauged.last
            for other in tallies
            if other.judged is tally.judged
        }
        before = {
            cotangent: self._gauge_of(cotangent).rows(piece, [name])
            for cotangent in judged.received
            if cotangent not in of_piece
        }
        measured = _Measured(of_piece | before, name)
        flips = measured.explained.get(tally.name)
        if scale.rms == 0 and tally.name:
            bound = torch.full_like(error.maximum, self._bound_of_zero(measured.eager))
            return Allowance(bound, bound) if float(error.maximum.max()) > float(bound[0]) else None
        floors = self._floors(judged.dtype, measured.effects(tally.name))
        yardstick = measured.yardstick
        if judge(relative(_unexplained(error, flips), scale), yardstick, *floors).share <= WORTH_A_LOOK:
            return None
        allowance = allowed(scale, yardstick, *floors)
        if flips is None:
            return allowance
        return Allowance(allowance.maximum + _known(flips.maximum), allowance.l2 + _known(flips.slice_rms))

    def _bound_of_zero(self, eager: Sequence[Parts]) -> float:
        """Return the largest allowed error of a gradient that is zero for every cotangent."""
        # A zero gradient gives no scale. Cotangents are of the order of one, so the floor of the
        # maximum norm serves as an absolute bound.
        straight = max((_largest(first) for first, *_ in eager), default=0.0)
        nudged = max((_largest(part) for _, *others in eager for part in others), default=0.0)
        theirs = max(straight, min(nudged, NUDGED_FACTOR * straight))
        least = (RELAXED if self._is_relaxed else FLOORS)[self._precision].maximum
        return max(MAX_FACTOR * theirs, least)

    def _gauge_of(self, cotangent: str) -> Gauge:
        """Return the gauge of the outputs ("") or of a cotangent; it holds at least magnitudes."""
        return self._gauges.get(cotangent) or self._scales[cotangent]

    def _book(self, tally: _Tally, with_gauges: bool) -> None:
        """Join the pieces and book them on their tensors."""
        judged = tally.judged
        if tally.gauged is not None:
            self._gauges[tally.name] = tally.gauged.whole
        if not with_gauges:
            self._scales[tally.name] = tally.reference.whole
        for name, parts in tally.received.items():
            judged[name].received[tally.name] = (joined(parts), tally.looks.get(name, []))
        for name, whole in tally.reference.whole.scale.items():
            before = judged[name].scale
            judged[name].scale = whole if before is None else before.larger(whole)

    def _floors(self, dtype: str, effects: Sequence[Errors]) -> tuple[LeastBudget, LeastBudget]:
        """Return the least budgets of a whole tensor and of its slices.

        They come from the precision class, or from what rounding the operands of products changes.
        """
        whole, by_slice = self._strict_floors(dtype, effects)
        if self._is_relaxed:
            accepted = RELAXED[self._precision]
            return LeastBudget(*map(max, whole, accepted)), LeastBudget(*map(max, by_slice, accepted))
        return whole, by_slice

    def _strict_floors(self, dtype: str, effects: Sequence[Errors]) -> tuple[LeastBudget, LeastBudget]:
        of_class = FLOORS[self._precision]
        if self._bits is None:
            return of_class, of_class
        whole, by_slice = operands_floors(effects)
        if dtype in ("float32", "float64"):
            return whole, by_slice
        # Storing a tensor of few bits rounds it once more.
        return LeastBudget(*map(max, of_class, whole)), LeastBudget(*map(max, of_class, by_slice))

    def _report(self, name: str, judged: _Judged) -> TensorReport:
        """Report on a tensor under its worst cotangent; failing cotangents come first."""
        blank = TensorReport(name, judged.shape, judged.dtype, False, trial=self._trial)
        if judged.note is not None:
            note, cotangent = judged.note
            return replace(blank, note=note, cotangent=cotangent)
        if judged.scale is None:
            raise ProblemError(f"the reference differentiates {name} in one draw and not in another")
        if self._proves_nothing(name, judged):
            raise ProblemError(
                f"the reference's {name} is zero, or not finite, everywhere in trial {self._trial}: it proves nothing"
            )
        measured = _Measured({cotangent: self._gauge_of(cotangent) for cotangent in judged.received}, name)
        worst: TensorReport | None = None
        for cotangent, (error, looks) in judged.received.items():
            flips = measured.explained.get(cotangent)
            form = replace(
                blank,
                cotangent=cotangent or None,
                sensitivity=None if flips is None else _finite(relative(flips, measured.scale)).l2,
            )
            effects = measured.effects(cotangent)
            if effects:
                form = replace(form, rounding=max(effect.l2 for effect in effects))
            # Integers and truth values must be equal. A flip explains one of their elements, never
            # its neighbours.
            left = _unexplained(error, flips) if _is_floating(judged.dtype) else error
            report = self._judge(form, judged, left, measured, self._floors(judged.dtype, effects))
            if worst is None or badness(report) > badness(worst):
                worst = report if report.ok else replace(report, **summary(looks, judged.shape))
        assert worst is not None
        return worst

    @staticmethod
    def _proves_nothing(name: str, judged: _Judged) -> bool:
        """Return whether a floating output is zero everywhere; a buffer may well be zero."""
        assert judged.scale is not None
        is_output = "" in judged.received and not name.startswith(PREFIX)
        return is_output and judged.scale.rms == 0 and bool(judged.scale.elements) and _is_floating(judged.dtype)

    def _judge(
        self,
        blank: TensorReport,
        judged: _Judged,
        error: Slices,
        measured: _Measured,
        floors: tuple[LeastBudget, LeastBudget],
    ) -> TensorReport:
        assert judged.scale is not None
        errors = relative(error, judged.scale)
        largest = float(error.maximum.max())
        if judged.scale.rms == 0 and blank.cotangent:
            note = "the reference's gradient is zero for every cotangent: it says little"
            return replace(blank, ok=largest <= self._bound_of_zero(measured.eager), note=note)
        if not _is_floating(judged.dtype):
            return replace(blank, ok=largest == 0, note="" if largest == 0 else "differs; it must be equal")
        verdict = judge(errors, measured.yardstick, *floors)
        if not verdict.ok:
            self._wrong[blank.name, blank.cotangent or ""] = errors
        return replace(
            blank,
            ok=verdict.ok,
            l2_error=verdict.l2_error,
            l2_budget=verdict.l2_budget,
            max_error=verdict.max_error,
            max_budget=verdict.max_budget,
            share=math.inf if math.isnan(verdict.share) else verdict.share,
        )


def _check_forms(outputs: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> None:
    """Check that the reference's outputs have the shapes of the candidate's.

    Raises:
        ProblemError: They do not, so the form depends on values.
    """
    if [output.shape for output in outputs] != [tensor.shape for tensor in expected]:
        raise ProblemError(FORMS_CHANGE)


def _scale(tally: _Tally, tallies: Sequence[_Tally], name: str, piece: slice | None) -> Slices:
    """Return a tensor's magnitude in a piece; of a gradient the largest over cotangents so far."""
    scale = tally.reference.last_scale(name)
    for other in tallies:
        if other.judged is tally.judged and name in other.reference.exact:
            scale = scale.larger(other.reference.last_scale(name))
    before = tally.judged[name].scale
    if before is not None and before.elements == scale.elements:
        scale = scale.larger(before.rows(0 if piece is None else piece.start, scale.squares.numel()))
    return scale


def _yardstick(eager: Sequence[Parts], scale: Slices) -> Errors:
    """Return eager's largest errors over cotangents and runs; the first run of each is not nudged."""
    straight = nudged = NO_ERROR
    for first, *others in eager:
        straight = straight.worst(_finite(relative(first, scale)))
        for part in others:
            nudged = nudged.worst(_finite(relative(part, scale)))
    return straight.worst(nudged.at_most(NUDGED_FACTOR, straight))


def _largest(error: Slices) -> float:
    """Return the largest deviation, or 0 where it is not finite: that must not widen a budget."""
    largest = float(error.maximum.max())
    return largest if math.isfinite(largest) else 0.0


def _known(sums: torch.Tensor) -> torch.Tensor:
    return torch.where(sums.isfinite(), sums, 0.0)


def _unexplained(error: Slices, flips: Slices | None) -> Slices:
    """Return the error less what flips at kinks may change."""
    return error if flips is None else beyond(error, flips)


def _is_floating(dtype: str) -> bool:
    return bool(getattr(torch, dtype).is_floating_point)


def _inequality(received: torch.Tensor, expected: torch.Tensor) -> Slices:
    """Return the deviation of integers or truth values, at least 1 where they differ.

    Without that minimum, float64 would hide differences between large integers.
    """
    apart = (received.to(torch.float64) - expected.to(torch.float64)).abs().clamp(min=1)
    difference = torch.where(received == expected, 0.0, apart)
    return deviation(difference, torch.zeros_like(difference))


def badness(report: TensorReport) -> tuple[bool, float]:
    """Order reports by how bad they are: failing ones first, then by their share of the budget."""
    return not report.ok, report.share or 0.0


def _finite(errors: Errors) -> Errors:
    """Replace errors that are not finite by 0: an overflow in eager must not widen a budget."""
    return Errors(*(value if math.isfinite(value) else 0.0 for value in errors))
