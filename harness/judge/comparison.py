"""What a candidate returned in one trial, against the reference: deviations first, then reports.

The exact evaluation comes in pieces where memory is short; deviations are sums over slices of dimension 0, so that
pieces join without loss.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness.errors import ProblemError
from harness.judge.buffers import PREFIX
from harness.judge.draws import Draw
from harness.judge.equivalence import (
    FLOORS,
    MAX_FACTOR,
    NO_ERROR,
    NUDGED_FACTOR,
    RELAXED,
    Allowance,
    Errors,
    Floor,
    Slices,
    allowed,
    beyond,
    deviation,
    joined,
    judge,
    magnitude,
    relative,
)
from harness.judge.kinks import Settled, explained_by, moved_runs
from harness.judge.operands import WAYS, Rounding, mantissa_bits, operands_floors
from harness.judge.pattern import Look, look, summary, worst_index
from harness.judge.reference import Graph, Reference, input_names, unpermuted
from harness.records import PrecisionClass, TensorReport
from harness.wire.arena import dtype_name
from harness.wire.structure import paths_of

Parts = list[Slices]
#: Of a form that depends on values.
FORMS_CHANGE = "the number or shapes of the reference's outputs change from draw to draw"
#: A piece is looked at from this share of its budget on: the whole tensor's may be a little tighter.
WORTH_A_LOOK = 0.5
#: An L2 error from which on nobody asks whether it is the rounding of a lower class.
GROSS = 2.0**-4


@dataclass
class TrialResult:
    """What one trial found.

    Attributes:
        pieces: In how many pieces of the batch the reference was evaluated.
        kinks: Samples ``redrawn`` and elements ``remaining``, empty where the reference has no kinks.
        outputs: A report per output.
        gradients: A report per leaf that the reference differentiates.
        lower_class: For a failing tensor, the lower precision class that accounts for its error.
        again: Whether forward ran once more before its first result was read.
        is_unsteady: Whether it failed, and passed when it ran again, whatever the order of threads.
        digests: Digests of what the candidate was given and returned, by name (see ``judge.digests``).
    """

    pieces: int = 1
    kinks: dict[str, int] = field(default_factory=dict)
    outputs: list[TensorReport] = field(default_factory=list)
    gradients: list[TensorReport] = field(default_factory=list)
    lower_class: dict[str, PrecisionClass] = field(default_factory=dict)
    again: bool = False
    is_unsteady: bool = False
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> list[TensorReport]:
        """The reports that are not ok, outputs first."""
        return [report for report in (*self.outputs, *self.gradients) if not report.ok]


@dataclass(frozen=True)
class Answer:
    """A candidate's gradients under one cotangent.

    Attributes:
        name: The cotangent's name, for reports.
        cotangent: One tensor per output.
        gradients: The candidate's gradients (private copies) by leaf, or a word for what is wrong with one.
    """

    name: str
    cotangent: Sequence[torch.Tensor]
    gradients: Mapping[str, torch.Tensor | str]

    @property
    def bytes(self) -> int:
        """What another answer like this one takes."""
        tensors = (*self.cotangent, *(one for one in self.gradients.values() if isinstance(one, torch.Tensor)))
        return sum(tensor.nbytes for tensor in tensors)


#: Kinds of evaluations beside the exact one.
KINDS = ("eager", "moved", "rounded")


def _by_kind() -> dict[str, dict[Any, Any]]:
    return {kind: {} for kind in KINDS}


@dataclass
class _Judged:
    """One tensor while its deviations come in.

    Attributes:
        shape: Shape of the reference's tensor.
        dtype: Its dtype.
        scale: Largest magnitude of the exact tensor over the cotangents so far.
        received: The candidate's deviation and looks at what may be wrong in it, by cotangent ("" for an output).
        others: Deviations of the reference's other evaluations, by kind and cotangent: of eager ones, of exact ones
            whose elements near a kink lie on its other side, and of exact ones with rounded operands of products, in
            each of ``operands.WAYS`` (none in the class fp32).
        note: What is wrong with the tensor's form, and under which cotangent.
    """

    shape: tuple[int, ...]
    dtype: str
    scale: Slices | None = None
    received: dict[str, tuple[Slices, list[Look]]] = field(default_factory=dict)
    others: dict[str, dict[str, Parts]] = field(default_factory=_by_kind)
    note: tuple[str, str] | None = None


@dataclass
class _Sums:
    """Sums by tensor, a list over the pieces each; of others by kind, tensor and run; looks at pieces beyond budget."""

    scale: dict[str, Parts] = field(default_factory=dict)
    received: dict[str, Parts] = field(default_factory=dict)
    others: dict[str, dict[tuple[str, int], Parts]] = field(default_factory=_by_kind)
    looks: dict[str, list[Look]] = field(default_factory=dict)

    def last(self, kind: str, name: str) -> Parts:
        """Deviations of the piece at hand in other evaluations, a tensor's."""
        return [parts[-1] for (tensor, _), parts in self.others[kind].items() if tensor == name]


@dataclass
class _Suspect:
    """A tensor, or a piece of it, that is beyond the least budget, until eager's error there is known.

    Attributes:
        received: The candidate's, floating.
        exact: The float64 reference.
        scale: The magnitude that its errors are relative to.
        worst: Index of its worst element.
        eager: Eager's value there.
    """

    received: torch.Tensor
    exact: torch.Tensor
    scale: Slices
    worst: tuple[int, ...]
    eager: float | None = None


@dataclass
class _Tally:
    """The outputs, or the gradients under one cotangent, while the pieces come in.

    Attributes:
        name: The cotangent's name; "" for the outputs.
        cotangent: One tensor per output; None for the outputs.
        mine: The candidate's tensors by name.
        judged: Where the sums are booked.
        by_rows: Names of what comes in pieces; all else is a parameter's, and a sum over the pieces.
        exact: The exact tensors of the piece at hand.
        suspects: What is beyond the least budget there.
        sums: Deviations so far.
        totals: Sums of parameters' gradients over the pieces, by kind and number of the evaluation.
    """

    name: str
    cotangent: Sequence[torch.Tensor] | None
    mine: Mapping[str, torch.Tensor]
    judged: dict[str, _Judged]
    by_rows: frozenset[str]
    exact: dict[str, torch.Tensor] = field(default_factory=dict)
    suspects: dict[str, _Suspect] = field(default_factory=dict)
    sums: _Sums = field(default_factory=_Sums)
    totals: dict[tuple[str, int], dict[str, torch.Tensor]] = field(default_factory=dict)

    def found(
        self, kind: str, number: int, graph: Graph, piece: slice | None, order: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        """An evaluation's tensors by name, the batch in its own order; sums over the pieces are added to the totals."""
        if self.cotangent is None:
            named = dict(zip(paths_of(graph.structure), graph.outputs, strict=True))
            named |= {PREFIX + name: buffer for name, buffer in graph.buffers.items()}
            return {name: unpermuted(named[name].detach(), order) for name in self.judged}
        part = [_rows(one, piece) for one in self.cotangent]
        totals = self.totals.setdefault((kind, number), {})
        of_inputs = {}
        for name, gradient in graph.gradients([_ordered(one, order) for one in part]).items():
            if gradient is None:
                continue
            if name in self.by_rows:
                of_inputs[name] = unpermuted(gradient, order)
            elif name in self.judged:
                totals[name] = totals[name] + gradient if name in totals else gradient
        return of_inputs


class Comparison:
    """Compares one trial.

    Args:
        reference: Evaluates the reference.
        draw: The trial's draw.
        seed: Seed of whatever a forward draws.
        leaves: The leaves whose gradients are judged.
        precision: The class under which errors are judged.
        trial: The trial's number, for reports.
        settled: How the draw was kept from kinks, None where the reference has none.
        is_relaxed: Whether no budget is below that of ``--precision relaxed``.
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
    ):
        self._reference = reference
        self._draw = draw
        self._seed = seed
        self._leaves = leaves
        self._precision = precision
        self._trial = trial
        self._is_relaxed = is_relaxed
        self._exact = reference.exact(draw, seed)
        self._bits = mantissa_bits(precision)
        self._inputs = set(input_names(draw).values())
        self._outputs: dict[str, _Judged] = {}
        self._gradients: dict[str, _Judged] = {}
        self._settled = settled
        self._wrong: dict[tuple[str, str], Errors] = {}
        self._result = TrialResult(len(self._exact.pieces), {} if settled is None else settled.counts)

    def add(
        self,
        outputs: Sequence[torch.Tensor] | None,
        answers: Sequence[Answer] = (),
        buffers: Mapping[str, torch.Tensor] = MappingProxyType({}),
    ) -> None:
        """Compare what the candidate returned, all of it by the same evaluations of the reference.

        Args:
            outputs: Its outputs (private copies); None where they are not judged here.
            answers: Its gradients, under one cotangent each.
            buffers: Those of its buffers that are judged, by the reference's names; they belong to the outputs.

        Raises:
            ProblemError: The reference does not run.
        """
        tallies = [self._tally_of_gradients(answer) for answer in answers]
        for place, piece in enumerate(self._exact.pieces):
            graph = self._exact.graph(piece)
            if outputs is not None:
                _check_forms(graph.outputs, [_rows(tensor, piece) for tensor in outputs])
                if any(output.is_complex() for output in graph.outputs):
                    raise ProblemError("the reference returns complex numbers, which cannot be judged yet")
                if place == 0:
                    tallies.insert(0, self._tally_of_outputs(paths_of(graph.structure), outputs, buffers))
            forms = [output.shape for output in graph.outputs]
            for tally in tallies:
                tally.exact = tally.found("exact", 0, graph, piece)
                self._add(tally, piece)
            del graph
            self._suspect(tallies, piece)
            for kind, number, other, order, mode in self._others(piece):
                if [output.shape for output in other.outputs] != forms:
                    raise ProblemError(FORMS_CHANGE)
                for tally in tallies:
                    with mode:
                        found = tally.found(kind, number, other, piece, order)
                    _add_other(tally, kind, number, found)
                del other
            self._examine(tallies, piece)
        for tally in tallies:
            tally.exact = tally.totals.pop(("exact", 0), {})
            self._add(tally, None)
        self._suspect(tallies, None)
        for tally in tallies:
            for (kind, number), total in tally.totals.items():
                _add_other(tally, kind, number, total)
        self._examine(tallies, None)
        for tally in tallies:
            self._book(tally)

    def _tally_of_outputs(
        self, names: Sequence[str], outputs: Sequence[torch.Tensor], buffers: Mapping[str, torch.Tensor]
    ) -> _Tally:
        received = dict(zip(names, outputs, strict=True)) | {PREFIX + name: one for name, one in buffers.items()}
        for name, tensor in received.items():
            self._outputs[name] = _Judged(tuple(tensor.shape), dtype_name(tensor.dtype))
        return _Tally("", None, received, self._outputs, frozenset(received))

    def _tally_of_gradients(self, answer: Answer) -> _Tally:
        for name in self._leaves:
            value = answer.gradients[name]
            shape, dtype = ((), "") if isinstance(value, str) else (tuple(value.shape), dtype_name(value.dtype))
            judged = self._gradients.setdefault(name, _Judged(shape, dtype))
            if isinstance(value, str) and judged.note is None:
                judged.note = (value, answer.name)
        tensors = {name: value for name, value in answer.gradients.items() if isinstance(value, torch.Tensor)}
        inputs = frozenset(name for name in self._leaves if name in self._inputs)
        return _Tally(answer.name, answer.cotangent, tensors, self._gradients, inputs)

    def result(self, answers: Sequence[Answer] | None = None) -> TrialResult:
        """The reports of everything that was added.

        Args:
            answers: Those that are still at hand, so that the lower class of what failed may be told by what rounding
                operands to it changes; None to tell it by the size of the error alone.

        Raises:
            ProblemError: The reference does not run.
        """
        for name, judged in self._outputs.items():
            self._result.outputs.append(self._report(name, judged))
        for name, judged in self._gradients.items():
            self._result.gradients.append(self._report(name, judged))
        self._result.lower_class = self._lower_classes(answers)
        return self._result

    def _lower_classes(self, answers: Sequence[Answer] | None) -> dict[str, PrecisionClass]:
        """The lower class of each failing tensor whose error it accounts for, by the tensor's name."""
        keys = ((report.name, report.cotangent or "") for report in self._result.failed)
        wrong = {key: self._wrong[key] for key in keys if key in self._wrong and self._wrong[key].l2 < GROSS}
        if not wrong or self._draw.bits is not None:  # of cut operands a lower class would show less than it is
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
        self, lower: Sequence[PrecisionClass], answers: Sequence[Answer]
    ) -> dict[tuple[PrecisionClass, str, str], list[Errors]]:
        """What rounding the operands of products to lower classes changes, by class, tensor and cotangent."""
        ways = [(other, bits, way) for other in lower if (bits := mantissa_bits(other)) for way, _ in WAYS]
        inputs = frozenset(name for name in self._leaves if name in self._inputs)
        tallies = [_Tally("", None, {}, self._outputs, frozenset(self._outputs))]
        tallies += [_Tally(answer.name, answer.cotangent, {}, self._gradients, inputs) for answer in answers]
        for piece in self._exact.pieces:
            graph = self._exact.graph(piece)
            for tally in tallies:
                tally.exact = tally.found("exact", 0, graph, piece)
            del graph
            for number, (_, bits, to_nearest) in enumerate(ways):
                mode = Rounding(bits, to_nearest)
                graph = self._rounded(mode, piece)
                for tally in tallies:
                    with mode:
                        found = tally.found("rounded", number, graph, piece)
                    _add_other(tally, "rounded", number, found)
                del graph
        effects: dict[tuple[PrecisionClass, str, str], list[Errors]] = {}
        for tally in tallies:
            tally.exact = tally.totals.pop(("exact", 0), {})
            for (kind, number), total in tally.totals.items():
                _add_other(tally, kind, number, total)
            for (name, number), parts in tally.sums.others["rounded"].items():
                scale = tally.judged[name].scale
                if scale is not None:
                    effect = _finite(relative(joined(parts), scale))
                    effects.setdefault((ways[number][0], name, tally.name), []).append(effect)
        return effects

    def of_other_outputs(self, outputs: Sequence[torch.Tensor]) -> list[TensorReport]:
        """The reports that other outputs would have had; of the evaluations only the exact one is made again.

        Args:
            outputs: Of the form of those that were added before.

        Raises:
            ProblemError: The reference does not run.
        """
        judged = {name: replace(one, received={}) for name, one in self._outputs.items()}
        tally = _Tally("", None, dict(zip(judged, outputs, strict=True)), judged, frozenset(judged))
        for piece in self._exact.pieces:
            tally.exact = tally.found("exact", 0, self._exact.graph(piece), piece)
            self._add(tally, piece)
        self._book(tally)
        return [self._report(name, one) for name, one in judged.items()]

    def _others(
        self, piece: slice | None
    ) -> Iterator[tuple[str, int, Graph, torch.Tensor | None, contextlib.AbstractContextManager[object]]]:
        """The other evaluations of a piece: kind, number, graph, order of its samples, and what its backward needs.

        Eager ones; where elements lie near kinks, exact ones that have them on the other side; and in the lower
        classes exact ones but for rounded operands.
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
        with sdpa_kernel(SDPBackend.MATH):  # elsewhere the products of attention are inside one operator
            return self._reference.run(self._draw, self._seed, torch.float64, piece, mode)

    def _add(self, tally: _Tally, piece: slice | None) -> None:
        """Add a piece's magnitudes and the candidate's deviations from it."""
        for name, expected in tally.exact.items():
            wanted = expected.to(torch.float64)
            tally.sums.scale.setdefault(name, []).append(magnitude(wanted))
            if name in tally.mine:
                mine = _rows(tally.mine[name], piece)
                is_floating = expected.is_floating_point()
                part = deviation(_real(mine), wanted) if is_floating else _inequality(mine, expected)
                tally.sums.received.setdefault(name, []).append(part)

    def _suspect(self, tallies: Sequence[_Tally], piece: slice | None) -> None:
        """Note what is beyond the least budget, and its worst element: eager's value there is picked up later."""
        least = self._floors("float32", [])
        for tally in tallies:
            for name in tally.exact.keys() & tally.mine.keys():
                error, scale = tally.sums.received[name][-1], _scale(tally, tallies, name, piece)
                if judge(relative(error, scale), NO_ERROR, *least).ok:
                    continue
                received = _real(_rows(tally.mine[name], piece))
                exact = tally.exact[name].to(torch.float64)
                worst = worst_index(received, exact, error, allowed(scale, NO_ERROR, *least).maximum)
                tally.suspects[name] = _Suspect(received, exact, scale, worst)

    def _examine(self, tallies: Sequence[_Tally], piece: slice | None) -> None:
        """Look at what is beyond its budget, now that the other evaluations of the piece are in."""
        for tally in tallies:
            for name, one in tally.suspects.items():
                allowance = self._allowance(tally, tallies, name, one.scale)
                if allowance is None:
                    continue
                worst = worst_index(one.received, one.exact, tally.sums.received[name][-1], allowance.maximum)
                eager = one.eager if worst == one.worst else None
                first_row = None if piece is None else piece.start
                seen = look(one.received, one.exact, allowance, worst, eager, first_row)
                tally.sums.looks.setdefault(name, []).append(seen)
            tally.suspects.clear()

    def _allowance(self, tally: _Tally, tallies: Sequence[_Tally], name: str, scale: Slices) -> Allowance | None:
        """What the budgets leave an element of the piece at hand; None where the piece is well within them."""
        judged = tally.judged[name]
        error, flips = tally.sums.received[name][-1], _flips(tally, name)
        if not _is_floating(judged.dtype):
            equal = torch.zeros_like(error.maximum)
            return Allowance(equal, equal) if bool((error.maximum > 0).any()) else None
        same = [other for other in tallies if other.judged is tally.judged]
        eager = [[_unexplained(part, _flips(other, name)) for part in other.sums.last("eager", name)] for other in same]
        if scale.rms == 0 and tally.name:
            bound = torch.full_like(error.maximum, self._bound_of_zero(eager))
            return Allowance(bound, bound) if float(error.maximum.max()) > float(bound[0]) else None
        yardstick = _yardstick(eager, scale)
        if judged.scale is not None:  # cotangents that were compared before
            before = _yardstick(list(judged.others["eager"].values()), judged.scale)
            yardstick = yardstick.worst(before)
        effects = [_finite(relative(part, scale)) for part in tally.sums.last("rounded", name)]
        floors = self._floors(judged.dtype, effects)
        if judge(relative(_unexplained(error, flips), scale), yardstick, *floors).share <= WORTH_A_LOOK:
            return None
        allowance = allowed(scale, yardstick, *floors)
        if flips is None:
            return allowance
        return Allowance(allowance.maximum + _known(flips.maximum), allowance.l2 + _known(flips.slice_rms))

    def _bound_of_zero(self, eager: Sequence[Parts]) -> float:
        """What an element of a gradient that is zero for every cotangent may be off."""
        # Nothing to be relative to. Cotangents are of the order of one, and so is what the budget's floor bounds.
        straight = max((_largest(first) for first, *_ in eager), default=0.0)
        nudged = max((_largest(part) for _, *others in eager for part in others), default=0.0)
        theirs = max(straight, min(nudged, NUDGED_FACTOR * straight))
        least = (RELAXED if self._is_relaxed else FLOORS)[self._precision].maximum
        return max(MAX_FACTOR * theirs, least)

    def _book(self, tally: _Tally) -> None:
        """Join the pieces and book them on their tensors."""
        judged, sums = tally.judged, tally.sums
        for name, parts in sums.received.items():
            judged[name].received[tally.name] = (joined(parts), sums.looks.get(name, []))
        for kind, others in sums.others.items():
            for (name, _), parts in others.items():
                judged[name].others[kind].setdefault(tally.name, []).append(joined(parts))
        for name, parts in sums.scale.items():
            whole, before = joined(parts), judged[name].scale
            judged[name].scale = whole if before is None else before.larger(whole)

    def _floors(self, dtype: str, effects: Sequence[Errors]) -> tuple[Floor, Floor]:
        """The least budgets of a tensor and of its slices: of its class, or from what its class may round."""
        whole, by_slice = self._strict_floors(dtype, effects)
        if self._is_relaxed:
            accepted = RELAXED[self._precision]
            return Floor(*map(max, whole, accepted)), Floor(*map(max, by_slice, accepted))
        return whole, by_slice

    def _strict_floors(self, dtype: str, effects: Sequence[Errors]) -> tuple[Floor, Floor]:
        of_class = FLOORS[self._precision]
        if self._bits is None:
            return of_class, of_class
        whole, by_slice = operands_floors(effects)
        if dtype in ("float32", "float64"):
            return whole, by_slice
        # A tensor of few bits is rounded once more when it is stored.
        return Floor(*map(max, of_class, whole)), Floor(*map(max, of_class, by_slice))

    def _report(self, name: str, judged: _Judged) -> TensorReport:
        """The report of a tensor: its worst cotangent, a failing one before all others."""
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
        explained = {cotangent: explained_by(parts) for cotangent, parts in judged.others["moved"].items()}
        # Eager's own flips are explained as well: they must not widen the budget eightfold.
        eager = [
            [_unexplained(part, explained.get(cotangent)) for part in parts]
            for cotangent, parts in judged.others["eager"].items()
        ]
        yardstick = _yardstick(eager, judged.scale)
        worst: TensorReport | None = None
        for cotangent, (error, looks) in judged.received.items():
            flips = explained.get(cotangent)
            form = replace(
                blank,
                cotangent=cotangent or None,
                sensitivity=None if flips is None else _finite(relative(flips, judged.scale)).l2,
            )
            # Rounding that overflows somewhere allows of nothing, like an eager run that does.
            effects = [_finite(relative(part, judged.scale)) for part in judged.others["rounded"].get(cotangent, [])]
            if effects:
                form = replace(form, rounding=max(effect.l2 for effect in effects))
            # Integers and truth values must be equal: a flip explains one element of them, never its neighbours.
            left = _unexplained(error, flips) if _is_floating(judged.dtype) else error
            report = self._judge(form, judged, left, eager, yardstick, self._floors(judged.dtype, effects))
            if worst is None or badness(report) > badness(worst):
                worst = report if report.ok else replace(report, **summary(looks, judged.shape))
        assert worst is not None
        return worst

    @staticmethod
    def _proves_nothing(name: str, judged: _Judged) -> bool:
        """Whether a tensor is an output, and zero everywhere; a buffer may well be set to zero."""
        assert judged.scale is not None
        is_output = "" in judged.received and not name.startswith(PREFIX)
        return is_output and judged.scale.rms == 0 and bool(judged.scale.elements) and _is_floating(judged.dtype)

    def _judge(
        self,
        blank: TensorReport,
        judged: _Judged,
        error: Slices,
        eager: Sequence[Parts],
        yardstick: Errors,
        floors: tuple[Floor, Floor],
    ) -> TensorReport:
        assert judged.scale is not None
        errors = relative(error, judged.scale)
        largest = float(error.maximum.max())
        if judged.scale.rms == 0 and blank.cotangent:
            note = "the reference's gradient is zero for every cotangent: it says little"
            return replace(blank, ok=largest <= self._bound_of_zero(eager), note=note)
        if not _is_floating(judged.dtype):
            return replace(blank, ok=largest == 0, note="" if largest == 0 else "differs; it must be equal")
        verdict = judge(errors, yardstick, *floors)
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
    """Verify that an evaluation of the reference has the form that the others have.

    Raises:
        ProblemError: It does not: the form depends on values.
    """
    if [output.shape for output in outputs] != [tensor.shape for tensor in expected]:
        raise ProblemError(FORMS_CHANGE)


def _add_other(tally: _Tally, kind: str, number: int, found: Mapping[str, torch.Tensor]) -> None:
    """Add the deviations of another run of the reference; of the first eager one also what suspects need."""
    for name, tensor in found.items():
        if name in tally.exact and tensor.shape == tally.exact[name].shape:
            part = deviation(_real(tensor.detach()), tally.exact[name].to(torch.float64))
            tally.sums.others[kind].setdefault((name, number), []).append(part)
            if (kind, number) == ("eager", 0) and name in tally.suspects:
                tally.suspects[name].eager = float(tensor[tally.suspects[name].worst])


def _scale(tally: _Tally, tallies: Sequence[_Tally], name: str, piece: slice | None) -> Slices:
    """A tensor's magnitude in the piece at hand: of a gradient the largest over the cotangents so far."""
    scale = tally.sums.scale[name][-1]
    for other in tallies:
        if other.judged is tally.judged and name in other.exact:
            scale = scale.larger(other.sums.scale[name][-1])
    before = tally.judged[name].scale
    if before is not None and before.elements == scale.elements:
        scale = scale.larger(before.rows(0 if piece is None else piece.start, scale.squares.numel()))
    return scale


def _flips(tally: _Tally, name: str) -> Slices | None:
    """What flips at kinks explain in the piece at hand; None where there are none."""
    moved = tally.sums.last("moved", name)
    return explained_by(moved) if moved else None


def _yardstick(eager: Sequence[Parts], scale: Slices) -> Errors:
    """Eager's errors: the largest over the cotangents, and over the runs of each, the first of which is not nudged."""
    straight = nudged = NO_ERROR
    for first, *others in eager:
        straight = straight.worst(_finite(relative(first, scale)))
        for part in others:
            nudged = nudged.worst(_finite(relative(part, scale)))
    return straight.worst(nudged.at_most(NUDGED_FACTOR, straight))


def _largest(error: Slices) -> float:
    """The largest deviation of all; 0 where that is not finite, which never widens a budget."""
    largest = float(error.maximum.max())
    return largest if math.isfinite(largest) else 0.0


def _known(sums: torch.Tensor) -> torch.Tensor:
    return torch.where(sums.isfinite(), sums, 0.0)


def _unexplained(error: Slices, flips: Slices | None) -> Slices:
    """What is left of an error without what flips at kinks may change."""
    return error if flips is None else beyond(error, flips)


def _rows(tensor: torch.Tensor, piece: slice | None) -> torch.Tensor:
    return tensor if piece is None else tensor[piece]


def _ordered(tensor: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    return tensor if order is None else tensor[order.to(tensor.device)]


def _is_floating(dtype: str) -> bool:
    return bool(getattr(torch, dtype).is_floating_point)


def _inequality(received: torch.Tensor, expected: torch.Tensor) -> Slices:
    """The deviation of integers or truth values, at least one where they differ: float64 does not hold all integers."""
    apart = (received.to(torch.float64) - expected.to(torch.float64)).abs().clamp(min=1)
    difference = torch.where(received == expected, 0.0, apart)
    return deviation(difference, torch.zeros_like(difference))


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """Integers and truth values as float64; floating tensors as they are."""
    return tensor if tensor.is_floating_point() else tensor.to(torch.float64)


def badness(report: TensorReport) -> tuple[bool, float]:
    """What the worst report of a tensor has most of: failing before passing, then the share of its budget."""
    return not report.ok, report.share or 0.0


def _finite(errors: Errors) -> Errors:
    """Eager may itself overflow somewhere; that never widens a budget."""
    return Errors(*(value if math.isfinite(value) else 0.0 for value in errors))
