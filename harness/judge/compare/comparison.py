"""Compares what a candidate returned in one trial with the reference and writes the reports.

Where memory is short, the exact evaluation comes in pieces of the batch. Deviations are sums over
slices of dimension 0, so the sums of the pieces join without loss.

Budgets depend on gauges: the errors of other evaluations of the reference, such as eager's. The
judge measures them once for each draw. The candidates of a batch get the same draws and share the
gauges.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness.errors import ProblemError
from harness.judge.compare.budgets import Budgets, TensorGauges, finite_only, is_floating, unexplained
from harness.judge.compare.error_pattern import look, summary, worst_index
from harness.judge.compare.lower_class import (
    GROSS,
    RoundingEffects,
    classes_below,
    explaining_classes,
    rounding_effects,
)
from harness.judge.compare.received import (
    ReceivedError,
    ReceivedGradients,
    ReceivedTensor,
    TensorTally,
    scale_in_piece,
)
from harness.judge.compare.trial_result import ProvesNothing, TrialResult, badness
from harness.judge.inputs.buffers import PREFIX
from harness.judge.inputs.draws import Draw
from harness.judge.reference.equivalence import Allowance, Errors, Slices, joined, relative
from harness.judge.reference.graph import Graph, in_one_draw_alone
from harness.judge.reference.kinks import Settled, moved_runs
from harness.judge.reference.reduced_precision import WAYS, Rounding, mantissa_bits
from harness.judge.reference.reference import FORMS_CHANGE, Reference
from harness.judge.reference.reference_errors import NORMAL, OWN_OUTPUT, Deviations, Gauge, Gauges, Influence, rows_of
from harness.records.record import PrecisionClass, TensorReport
from harness.wire.arena import dtype_name
from harness.wire.structure import paths_of

#: Message for a reference with complex outputs.
COMPLEX = "the reference returns complex numbers, which the harness cannot judge: return torch.view_as_real of them"


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
        *,
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
        self._budgets = Budgets(precision, is_relaxed)
        self._exact = reference.exact(draw, seed)
        self._bits = mantissa_bits(precision)
        self._gauges_at_need = gauges_at_need and self._bits is None
        self._inputs = set(draw.input_names().values())
        self._outputs: dict[str, ReceivedTensor] = {}
        self._gradients: dict[str, ReceivedTensor] = {}
        self._settled = settled
        self._influences: dict[str, Influence] = {}
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

    def _are_fine(self, tallies: Sequence[TensorTally]) -> bool:
        """Return whether every tensor in these tallies is within its budget."""
        judged = {id(tally.judged): tally.judged for tally in tallies}
        reports = (
            self._report(name, one)
            for by_name in judged.values()
            for name, one in by_name.items()
            if one.received and one.scales
        )
        return all(report.ok for report in reports)

    def _added(
        self,
        outputs: Sequence[torch.Tensor] | None,
        answers: Sequence[ReceivedGradients],
        buffers: Mapping[str, torch.Tensor],
        with_gauges: bool,
    ) -> list[TensorTally]:
        """Compare and book the arguments of ``add``.

        With ``with_gauges`` it also measures the reference's other evaluations.
        """
        tallies = [self._tally_of_gradients(answer, with_gauges) for answer in answers]
        for place, piece in enumerate(self._exact.pieces):
            graph = self._exact.graph(piece)
            if outputs is not None:
                _check_forms(graph.outputs, [rows_of(tensor, piece) for tensor in outputs])
                if any(output.is_complex() for output in graph.outputs):
                    raise ProblemError(COMPLEX)
                if place == 0:
                    names = paths_of(graph.structure)
                    tallies.insert(0, self._tally_of_outputs(names, outputs, buffers, with_gauges))
            for tally in tallies:
                for deviations in tally.gauging:
                    deviations.begin(graph, piece)
            unknown = [tally.gauged for tally in tallies if tally.gauged is not None]
            if unknown:
                forms = [output.shape for output in graph.outputs]
                del graph
                self._gauge(unknown, piece, forms)
            else:
                del graph
            for tally in tallies:
                tally.add(piece)
            if with_gauges:
                self._examine(tallies, piece)
                for tally in tallies:
                    if tally.influence is not None:
                        tally.influence.rest()
        for tally in tallies:
            for deviations in tally.gauging:
                deviations.begin_totals()
            if tally.gauged is not None:
                tally.gauged.add_totals()
            tally.add(None)
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
    ) -> TensorTally:
        received = dict(zip(names, outputs, strict=True)) | {PREFIX + name: one for name, one in buffers.items()}
        for name, tensor in received.items():
            self._outputs[name] = ReceivedTensor(tuple(tensor.shape), dtype_name(tensor.dtype))
        known, influence = self._known(""), self._influence("") if with_gauges else None
        reference = Deviations(received, frozenset(received), known=known, influence=influence)
        gauged = reference if known is None and with_gauges else None
        return TensorTally("", received, self._outputs, reference, gauged, influence)

    def _known(self, cotangent: str) -> Gauge | None:
        """Return the gauge of the outputs ("") or of a cotangent if it is known completely."""
        known = self._gauges.get(cotangent)
        return None if known is None or known.is_cut else known

    def _influence(self, cotangent: str) -> Influence:
        """Return where the influence of flips is known, or where it goes."""
        known = self._known(cotangent)
        if known is not None:
            return known.influence
        if cotangent not in self._influences:
            other = self._influence(NORMAL) if cotangent not in ("", NORMAL) else None
            self._influences[cotangent] = Influence(other)
        return self._influences[cotangent]

    def _tally_of_gradients(self, answer: ReceivedGradients, with_gauges: bool) -> TensorTally:
        for name in self._leaves:
            value = answer.gradients[name]
            shape, dtype = ((), "") if isinstance(value, str) else (tuple(value.shape), dtype_name(value.dtype))
            judged = self._gradients.setdefault(name, ReceivedTensor(shape, dtype))
            if not judged.dtype:  # no earlier cotangent gave a tensor
                judged.shape, judged.dtype = shape, dtype
            if isinstance(value, str) and judged.note is None:
                judged.note = (value, answer.name)
        tensors = {name: value for name, value in answer.gradients.items() if isinstance(value, torch.Tensor)}
        inputs = frozenset(name for name in self._leaves if name in self._inputs)
        known, influence = self._known(answer.name), self._influence(answer.name) if with_gauges else None
        is_own, cotangent, gauged = answer.name == OWN_OUTPUT, answer.cotangent, None
        reference = Deviations(self._leaves, inputs, cotangent, known=None if is_own else known, influence=influence)
        if known is None and with_gauges:
            gauged = reference
            if is_own:
                own = self._exact.own_output([one.dtype for one in cotangent], answer.alone)
                gauged = Deviations(self._leaves, inputs, own_output=own, influence=influence)
        return TensorTally(answer.name, tensors, self._gradients, reference, gauged, influence)

    def result(self, answers: Sequence[ReceivedGradients] | None = None) -> TrialResult:
        """Return the reports on everything that was added.

        Args:
            answers: The candidate's gradients, where still in memory. With them the judge names the
                lower class of a failing tensor by what rounding operands to that class changes.
                With None it only has the size of the error.

        Raises:
            ProvesNothing: An output is zero everywhere, or not finite.
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
        lower = classes_below(self._precision)
        return explaining_classes(wrong, lower, {} if answers is None else self._effects(lower, answers))

    def _effects(self, lower: Sequence[PrecisionClass], answers: Sequence[ReceivedGradients]) -> RoundingEffects:
        """Measure what rounding operands to lower classes changes."""
        inputs = frozenset(name for name in self._leaves if name in self._inputs)
        sought = {"": Deviations(self._outputs, frozenset(self._outputs))}
        sought |= {answer.name: Deviations(self._leaves, inputs, answer.cotangent) for answer in answers}

        def scale_of(cotangent: str, name: str) -> Slices | None:
            return (self._gradients if cotangent else self._outputs)[name].scale(cotangent)

        return rounding_effects(self._exact, lower, sought, self._rounded, scale_of)

    def of_other_outputs(self, outputs: Sequence[torch.Tensor]) -> list[TensorReport]:
        """Judge other outputs with the same gauges; only the exact evaluation runs again.

        Args:
            outputs: Outputs of the same form as those added before.

        Raises:
            ProblemError: The reference does not run.
        """
        judged = {name: replace(one, received={}) for name, one in self._outputs.items()}
        reference = Deviations(judged, frozenset(judged))
        mine = dict(zip(judged, outputs, strict=True))
        tally = TensorTally("", mine, judged, reference, None, self._influence(""))
        for piece in self._exact.pieces:
            reference.begin(self._exact.graph(piece), piece)
            tally.add(piece)
        self._book(tally, True)
        return [self._report(name, one) for name, one in judged.items()]

    def _others(
        self, piece: slice | None
    ) -> Iterator[tuple[str, int, Graph, torch.Tensor | None, contextlib.AbstractContextManager[object]]]:
        """Yield the other evaluations of a piece: kind, number, graph, sample order, backward mode.

        There are three kinds. Where elements lie near kinks, ``moved`` runs come first: exact
        evaluations with those elements on the other side. Then come ``eager`` runs. In the lower
        classes ``rounded`` runs are exact but for the rounded operands of products. Their backward
        must run within the mode.
        """
        plain = contextlib.nullcontext()
        if self._settled is not None and self._settled.remaining:
            for number, graph in enumerate(moved_runs(self._reference, self._settled, self._seed, piece)):
                yield "moved", number, graph, None, plain
                del graph  # Release it before the next run.
        for number, (graph, order) in enumerate(self._reference.eager_runs(self._draw, self._seed, piece)):
            yield "eager", number, graph, order, plain
            del graph
        if self._bits is not None:
            for number, (to_nearest, _) in enumerate(WAYS):
                mode = Rounding(self._bits, to_nearest)
                yield "rounded", number, self._rounded(mode, piece), None, mode

    def _rounded(self, mode: Rounding, piece: slice | None) -> Graph:
        # Other attention backends hide the products of attention inside one operator.
        with sdpa_kernel(SDPBackend.MATH):
            return self._reference.run(self._draw, self._seed, torch.float64, piece, watch=mode)

    def _examine(self, tallies: Sequence[TensorTally], piece: slice | None) -> None:
        """Describe the tensors that are beyond their budget in a piece.

        It runs after the other evaluations of the piece, which decide the budgets.
        """
        worst: dict[tuple[str, str], tuple[int, ...]] = {}
        allowances: dict[tuple[str, str], Allowance] = {}
        apart: set[tuple[str, str]] = set()
        for tally in tallies:
            for name in tally.reference.exact.keys() & tally.mine.keys():
                key, error, allowance = (tally.name, name), tally.received[name][-1], None
                if name in tally.left:
                    allowance = self._allowance(tally, tallies, name, piece, left=tally.left[name][-1])
                if allowance is not None:
                    error = tally.left[name][-1]
                    apart.add(key)
                else:
                    allowance = self._allowance(tally, tallies, name, piece)
                if allowance is None:
                    continue
                received, exact = tally.compared(name, piece, key in apart, allowance)
                allowances[key], worst[key] = allowance, worst_index(received, exact, error, allowance.maximum)
        eager = self._eager_at(tallies, worst, piece)
        for tally in tallies:
            for (cotangent, name), at in worst.items():
                if cotangent == tally.name:
                    key, first_row = (cotangent, name), None if piece is None else piece.start
                    received, exact = tally.compared(name, piece, key in apart, allowances[key])
                    seen = look(received, exact, allowances[key], at, eager=eager.get(key), first_row=first_row)
                    tally.looks.setdefault(name, []).append(seen)

    def _eager_at(
        self, tallies: Sequence[TensorTally], worst: Mapping[tuple[str, str], tuple[int, ...]], piece: slice | None
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

    def _allowance(
        self,
        tally: TensorTally,
        tallies: Sequence[TensorTally],
        name: str,
        piece: slice | None,
        left: Slices | None = None,
    ) -> Allowance | None:
        """Return what the budgets allow each element of a piece; None where it is well within them.

        ``left`` is the error where flips have excused single elements; without it they explain a part of the slice's.
        """
        judged = tally.judged[name]

        def gauges() -> TensorGauges:
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
            return TensorGauges(of_piece | before, name)

        error, scale = left or tally.received[name][-1], scale_in_piece(tally, tallies, name, piece)
        return self._budgets.allowance(judged.dtype, tally.name, error, scale, gauges, with_flips=left is None)

    def _gauge_of(self, cotangent: str) -> Gauge:
        """Return the gauge of the outputs ("") or of a cotangent; it holds at least magnitudes."""
        return self._gauges.get(cotangent) or self._scales[cotangent]

    def _book(self, tally: TensorTally, with_gauges: bool) -> None:
        """Join the pieces and book them on their tensors."""
        judged = tally.judged
        if tally.gauged is not None:
            self._gauges[tally.name] = tally.gauged.whole
        if not with_gauges:
            self._scales[tally.name] = tally.reference.whole
        for name, parts in tally.received.items():
            left = joined(tally.left[name]) if name in tally.left else None
            judged[name].received[tally.name] = ReceivedError(joined(parts), left, tally.looks.get(name, []))
        for name, whole in tally.reference.whole.scale.items():
            judged[name].scales[tally.name] = whole

    def _report(self, name: str, judged: ReceivedTensor) -> TensorReport:
        """Report on a tensor under its worst cotangent; failing cotangents come first."""
        blank = TensorReport(name, judged.shape, judged.dtype, False, trial=self._trial)
        if not judged.scales:
            raise ProblemError(in_one_draw_alone(name))
        if judged.note is not None:
            note, cotangent = judged.note
            return replace(blank, note=note, cotangent=cotangent)
        if self._proves_nothing(name, judged):
            raise ProvesNothing(
                f"the reference's {name} is zero everywhere, or not finite, in trial {self._trial}: "
                "comparing it proves nothing"
            )
        measured = TensorGauges({cotangent: self._gauge_of(cotangent) for cotangent in judged.received}, name)
        worst: TensorReport | None = None
        for cotangent, (error, excess, looks) in judged.received.items():
            flips = measured.explained.get(cotangent)
            form = replace(
                blank,
                cotangent=cotangent or None,
                sensitivity=None if flips is None else finite_only(relative(flips, measured.scale(cotangent))).l2,
            )
            effects = measured.effects(cotangent)
            if effects:
                rounding = max(effect.l2 for effect in effects)
                form = replace(form, rounding=rounding, eager_error=measured.yardstick.l2)
            # Integers and truth values must be equal. A flip explains one of their elements, never
            # its neighbours.
            left = unexplained(error, flips, excess) if is_floating(judged.dtype) else error
            scale = measured.scale(cotangent)
            report = self._budgets.judged(form, left, scale, measured)
            # Wrong elements that hold a multiple of the expected value are no matter of precision.
            if not report.ok and report.share is not None and not any(one.holds for one in looks):
                self._wrong[name, cotangent] = relative(left, scale)
            if worst is None or badness(report) > badness(worst):
                worst = report if report.ok else replace(report, **summary(looks, judged.shape))
        assert worst is not None
        return worst

    @staticmethod
    def _proves_nothing(name: str, judged: ReceivedTensor) -> bool:
        """Return whether a floating output is zero everywhere; a buffer may well be zero."""
        scale = judged.scale("")
        assert scale is not None
        is_output = "" in judged.received and not name.startswith(PREFIX)
        return is_output and scale.rms == 0 and bool(scale.elements) and is_floating(judged.dtype)


def _check_forms(outputs: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> None:
    """Check that the reference's outputs have the shapes of the candidate's.

    Raises:
        ProblemError: They do not, so the form depends on values.
    """
    if [output.shape for output in outputs] != [tensor.shape for tensor in expected]:
        raise ProblemError(FORMS_CHANGE)
