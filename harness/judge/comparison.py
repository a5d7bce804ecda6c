"""What a candidate returned in one trial, against the reference: deviations first, then reports.

The exact evaluation comes in pieces where memory is short; deviations are sums over slices of dimension 0, so that
pieces join without loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness.errors import ProblemError
from harness.judge.draws import Draw
from harness.judge.equivalence import (
    FLOORS,
    MAX_FACTOR,
    NO_ERROR,
    Errors,
    Floor,
    Slices,
    beyond,
    deviation,
    first_difference,
    joined,
    judge,
    magnitude,
    relative,
)
from harness.judge.kinks import Settled, explained_by, moved_runs
from harness.judge.operands import WAYS, Rounding, mantissa_bits, operands_floors
from harness.judge.reference import Graph, Reference, input_names, unpermuted
from harness.records import PrecisionClass, TensorReport
from harness.wire.arena import dtype_name

Parts = list[Slices]


@dataclass
class TrialResult:
    """What one trial found.

    Attributes:
        pieces: In how many pieces of the batch the reference was evaluated.
        kinks: Samples ``redrawn`` and elements ``remaining``, empty where the reference has no kinks.
        outputs: A report per output.
        gradients: A report per leaf that the reference differentiates.
        words: For a failing tensor, where its largest error is.
        lower_class: For a failing tensor, the lower precision class that it would pass in.
    """

    pieces: int = 1
    kinks: dict[str, int] = field(default_factory=dict)
    outputs: list[TensorReport] = field(default_factory=list)
    gradients: list[TensorReport] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
    lower_class: dict[str, PrecisionClass] = field(default_factory=dict)

    @property
    def failed(self) -> list[TensorReport]:
        """The reports that are not ok, outputs first."""
        return [report for report in (*self.outputs, *self.gradients) if not report.ok]


@dataclass
class _Judged:
    """One tensor while its deviations come in.

    Attributes:
        shape: Shape of the reference's tensor.
        dtype: Its dtype.
        scale: Largest magnitude of the exact tensor over the cotangents so far.
        received: The candidate's deviation and the words for its largest error, by cotangent ("" for an output).
        eager: Eager's deviations, by cotangent.
        moved: Deviations of exact evaluations whose elements near a kink lie on its other side, by cotangent.
        rounded: What rounding the operands of products changes, in each of ``operands.WAYS``, by cotangent; empty in
            the class fp32.
        note: What is wrong with the tensor's form, and under which cotangent.
    """

    shape: tuple[int, ...]
    dtype: str
    scale: Slices | None = None
    received: dict[str, tuple[Slices, str]] = field(default_factory=dict)
    eager: dict[str, Parts] = field(default_factory=dict)
    moved: dict[str, Parts] = field(default_factory=dict)
    rounded: dict[str, Parts] = field(default_factory=dict)
    note: tuple[str, str] | None = None


@dataclass
class _Sums:
    """Sums by tensor, a list over the pieces each; of other runs by tensor and run; words for the largest error."""

    scale: dict[str, Parts] = field(default_factory=dict)
    received: dict[str, Parts] = field(default_factory=dict)
    eager: dict[tuple[str, int], Parts] = field(default_factory=dict)
    moved: dict[tuple[str, int], Parts] = field(default_factory=dict)
    rounded: dict[tuple[str, int], Parts] = field(default_factory=dict)
    words: dict[str, tuple[float, str]] = field(default_factory=dict)


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
    ):
        self._reference = reference
        self._draw = draw
        self._seed = seed
        self._leaves = leaves
        self._precision = precision
        self._trial = trial
        self._exact = reference.exact(draw, seed)
        self._whole_runs: list[tuple[Graph, torch.Tensor | None]] | None = None
        self._whole_rounded: list[Graph] | None = None
        self._bits = mantissa_bits(precision)
        self._inputs = set(input_names(draw).values())
        self._outputs: dict[str, _Judged] = {}
        self._gradients: dict[str, _Judged] = {}
        self._settled = settled
        self._result = TrialResult(len(self._exact.pieces), {} if settled is None else settled.counts)

    def add_outputs(self, received: Sequence[torch.Tensor]) -> None:
        """Compare the outputs (private copies), the candidate's and those of the eager runs.

        Raises:
            ProblemError: The reference does not run.
        """
        names = output_names(len(received))
        for name, tensor in zip(names, received, strict=True):
            self._outputs[name] = _Judged(tuple(tensor.shape), dtype_name(tensor.dtype))
        sums = _Sums()
        for piece in self._exact.pieces:
            exact = self._exact_outputs(names, received, piece)
            mine = {name: _rows(tensor, piece) for name, tensor in zip(names, received, strict=True)}
            self._add(sums, exact, mine, _first_row(piece))
            for number, (graph, order) in enumerate(self._eager_runs(piece)):
                _check_forms(graph.outputs, list(exact.values()))
                outputs = {name: unpermuted(one, order) for name, one in _named(names, graph.outputs).items()}
                _add_other(sums.eager, number, exact, outputs)
            for number, graph in enumerate(self._moved_runs(piece)):
                _add_other(sums.moved, number, exact, _named(names, graph.outputs))
            for number, (graph, _) in enumerate(self._rounded_runs(piece)):
                _add_other(sums.rounded, number, exact, _named(names, graph.outputs))
        self._book("", self._outputs, sums)

    def add_gradients(
        self, cotangent_name: str, cotangent: Sequence[torch.Tensor], received: Mapping[str, torch.Tensor | str]
    ) -> None:
        """Compare the gradients under one cotangent.

        Args:
            cotangent_name: Its name, for reports.
            cotangent: One tensor per output.
            received: The candidate's gradients (private copies) by leaf, or a word for what is wrong with one.
        """
        tensors = {name: value for name, value in received.items() if isinstance(value, torch.Tensor)}
        for name in self._leaves:
            value = received[name]
            shape, dtype = ((), "") if isinstance(value, str) else (tuple(value.shape), dtype_name(value.dtype))
            judged = self._gradients.setdefault(name, _Judged(shape, dtype))
            if isinstance(value, str) and judged.note is None:
                judged.note = (value, cotangent_name)
        sums = _Sums()
        total: dict[str, torch.Tensor] = {}  # of parameters, over the pieces
        eager_totals: list[dict[str, torch.Tensor]] = []
        moved_totals: list[dict[str, torch.Tensor]] = []
        rounded_totals: list[dict[str, torch.Tensor]] = [{} for _ in WAYS]
        for piece in self._exact.pieces:
            part = [_rows(one, piece) for one in cotangent]
            exact = self._split(self._exact.graph(piece).gradients(part), total)
            mine = {name: _rows(tensors[name], piece) for name in exact if name in tensors}
            self._add(sums, exact, mine, _first_row(piece))
            for number, (graph, order) in enumerate(self._eager_runs(piece)):
                permuted = [one if order is None else one[order.to(one.device)] for one in part]
                if number == len(eager_totals):
                    eager_totals.append({})
                found = self._split(graph.gradients(permuted), eager_totals[number])
                _add_other(sums.eager, number, exact, {name: unpermuted(one, order) for name, one in found.items()})
            for number, graph in enumerate(self._moved_runs(piece)):
                if number == len(moved_totals):
                    moved_totals.append({})
                _add_other(sums.moved, number, exact, self._split(graph.gradients(part), moved_totals[number]))
            for number, (graph, mode) in enumerate(self._rounded_runs(piece)):
                with mode:
                    gradients = graph.gradients(part)
                _add_other(sums.rounded, number, exact, self._split(gradients, rounded_totals[number]))
        self._add(sums, total, {name: tensors[name] for name in total if name in tensors}, 0)
        for number, found in enumerate(eager_totals):
            _add_other(sums.eager, number, total, found)
        for number, found in enumerate(moved_totals):
            _add_other(sums.moved, number, total, found)
        for number, found in enumerate(rounded_totals):
            _add_other(sums.rounded, number, total, found)
        self._book(cotangent_name, self._gradients, sums)

    def result(self) -> TrialResult:
        """The reports of everything that was added."""
        for name, judged in self._outputs.items():
            self._result.outputs.append(self._report(name, judged))
        for name, judged in self._gradients.items():
            self._result.gradients.append(self._report(name, judged))
        return self._result

    def _eager_runs(self, piece: slice | None) -> Iterable[tuple[Graph, torch.Tensor | None]]:
        """The eager runs of a piece; those of the whole batch are made once and kept, those of pieces anew."""
        runs = self._reference.eager_runs(self._draw, self._seed, piece)
        if piece is not None:
            return runs
        if self._whole_runs is None:
            self._whole_runs = list(runs)
        return self._whole_runs

    def _moved_runs(self, piece: slice | None) -> Iterable[Graph]:
        """The runs of a piece with elements moved past their kinks: too many to be kept, so always made anew."""
        if self._settled is None or not self._settled.remaining:
            return []
        return moved_runs(self._reference, self._settled, self._seed, piece)

    def _rounded_runs(self, piece: slice | None) -> Iterator[tuple[Graph, Rounding]]:
        """Exact evaluations of a piece but for rounded operands, and how they were; those of the whole are kept."""
        if self._bits is None:
            return
        modes = [Rounding(self._bits, to_nearest) for to_nearest, _ in WAYS]
        if piece is None and self._whole_rounded is None:
            self._whole_rounded = [self._rounded(mode, None) for mode in modes]
        for number, mode in enumerate(modes):
            kept = self._whole_rounded if piece is None else None
            yield kept[number] if kept is not None else self._rounded(mode, piece), mode

    def _rounded(self, mode: Rounding, piece: slice | None) -> Graph:
        with sdpa_kernel(SDPBackend.MATH):  # elsewhere the products of attention are inside one operator
            return self._reference.run(self._draw, self._seed, torch.float64, piece, mode)

    def _exact_outputs(
        self, names: Sequence[str], received: Sequence[torch.Tensor], piece: slice | None
    ) -> dict[str, torch.Tensor]:
        """A piece of the exact outputs, in the form that the first draw had.

        Raises:
            ProblemError: The reference's form changes from draw to draw, or is one that cannot be judged.
        """
        outputs = self._exact.graph(piece).outputs
        _check_forms(outputs, [_rows(tensor, piece) for tensor in received])
        if any(output.is_complex() for output in outputs):
            raise ProblemError("the reference returns complex numbers, which cannot be judged yet")
        return _named(names, outputs)

    def _split(
        self, gradients: Mapping[str, torch.Tensor | None], totals: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """The gradients of inputs; those of parameters are added to ``totals``."""
        of_inputs = {}
        for name, gradient in gradients.items():
            if name not in self._leaves or gradient is None:
                continue
            if name in self._inputs:
                of_inputs[name] = gradient
            else:
                totals[name] = totals[name] + gradient if name in totals else gradient
        return of_inputs

    def _add(
        self, sums: _Sums, exact: Mapping[str, torch.Tensor], mine: Mapping[str, torch.Tensor], first_row: int
    ) -> None:
        """Add a piece's magnitudes and the candidate's deviations from it."""
        for name, expected in exact.items():
            wanted = expected.to(torch.float64)
            scale = magnitude(wanted)
            sums.scale.setdefault(name, []).append(scale)
            if name not in mine:
                continue
            part = deviation(_real(mine[name]), wanted)
            sums.received.setdefault(name, []).append(part)
            largest = float(part.maximum.max())
            if largest > sums.words.get(name, (0.0, ""))[0] and not self._fits(part, scale):
                sums.words[name] = (largest, first_difference(mine[name], wanted, first_row))

    def _book(self, cotangent: str, judged: Mapping[str, _Judged], sums: _Sums) -> None:
        """Join the pieces and book them on their tensors."""
        for name, parts in sums.received.items():
            judged[name].received[cotangent] = (joined(parts), sums.words.get(name, (0.0, ""))[1])
        for (name, _), parts in sums.eager.items():
            judged[name].eager.setdefault(cotangent, []).append(joined(parts))
        for (name, _), parts in sums.moved.items():
            judged[name].moved.setdefault(cotangent, []).append(joined(parts))
        for (name, _), parts in sums.rounded.items():
            judged[name].rounded.setdefault(cotangent, []).append(joined(parts))
        for name, parts in sums.scale.items():
            whole, before = joined(parts), judged[name].scale
            judged[name].scale = whole if before is None else before.larger(whole)

    def _fits(self, part: Slices, scale: Slices) -> bool:
        return judge(relative(part, scale), NO_ERROR, *self._floors("float32", [])).ok

    def _floors(self, dtype: str, effects: Sequence[Errors]) -> tuple[Floor, Floor]:
        """The least budgets of a tensor and of its slices: of its class, or from what its class may round."""
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
            self._result.words[name] = note
            return replace(blank, note=note, cotangent=cotangent)
        if judged.scale is None:
            raise ProblemError(f"the reference differentiates {name} in one draw and not in another")
        if judged.scale.rms == 0 and "" in judged.received and judged.scale.elements and _is_floating(judged.dtype):
            raise ProblemError(
                f"the reference's {name} is zero, or not finite, everywhere in trial {self._trial}: it proves nothing"
            )
        explained = {cotangent: explained_by(parts) for cotangent, parts in judged.moved.items()}
        # Eager's own flips are explained as well: they must not widen the budget eightfold.
        eager = [_unexplained(part, explained.get(run)) for run, parts in judged.eager.items() for part in parts]
        yardstick = NO_ERROR
        for part in eager:
            yardstick = yardstick.worst(_finite(relative(part, judged.scale)))
        worst: TensorReport | None = None
        for cotangent, (error, words) in judged.received.items():
            flips = explained.get(cotangent)
            form = replace(
                blank,
                cotangent=cotangent or None,
                sensitivity=None if flips is None else _finite(relative(flips, judged.scale)).l2,
            )
            # Rounding that overflows somewhere allows of nothing, like an eager run that does.
            effects = [_finite(relative(part, judged.scale)) for part in judged.rounded.get(cotangent, [])]
            if effects:
                form = replace(form, rounding=max(effect.l2 for effect in effects))
            # Integers and truth values must be equal: a flip explains one element of them, never its neighbours.
            left = _unexplained(error, flips) if _is_floating(judged.dtype) else error
            report = self._judge(form, judged, left, eager, yardstick, self._floors(judged.dtype, effects))
            if worst is None or badness(report) > badness(worst):
                worst = report
                if not report.ok:
                    self._result.words[name] = words
        assert worst is not None
        return worst

    def _judge(
        self,
        blank: TensorReport,
        judged: _Judged,
        error: Slices,
        eager: Parts,
        yardstick: Errors,
        floors: tuple[Floor, Floor],
    ) -> TensorReport:
        assert judged.scale is not None
        errors = relative(error, judged.scale)
        largest = float(error.maximum.max())
        if judged.scale.rms == 0 and blank.cotangent:
            # Nothing to be relative to. Cotangents are of the order of one, and so is what the budget's floor bounds.
            theirs = max((float(part.maximum.max()) for part in eager), default=0.0)
            bound = max(MAX_FACTOR * theirs if math.isfinite(theirs) else 0.0, FLOORS[self._precision].maximum)
            note = "the reference's gradient is zero for every cotangent: it says little"
            return replace(blank, ok=largest <= bound, note=note)
        if not _is_floating(judged.dtype):
            return replace(blank, ok=largest == 0, note="" if largest == 0 else "differs; it must be equal")
        verdict = judge(errors, yardstick, *floors)
        if not verdict.ok and self._draw.bits is None:  # of cut operands a lower class would show less than it is
            lower = [other for other in PrecisionClass if FLOORS[other].l2 > FLOORS[self._precision].l2]
            fitting = [other for other in lower if judge(errors, NO_ERROR, FLOORS[other]).ok]
            if fitting:
                self._result.lower_class[blank.name] = fitting[0]
        return replace(
            blank,
            ok=verdict.ok,
            l2_error=verdict.l2_error,
            l2_budget=verdict.l2_budget,
            max_error=verdict.max_error,
            max_budget=verdict.max_budget,
            share=math.inf if math.isnan(verdict.share) else verdict.share,
        )


def output_names(count: int) -> list[str]:
    """What reports call the outputs."""
    return ["output"] if count == 1 else [f"output[{index}]" for index in range(count)]


def _check_forms(outputs: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> None:
    """Verify that an evaluation of the reference has the form that the others have.

    Raises:
        ProblemError: It does not: the form depends on values.
    """
    if [output.shape for output in outputs] != [tensor.shape for tensor in expected]:
        raise ProblemError("the number or shapes of the reference's outputs change from draw to draw")


def _add_other(
    sums: dict[tuple[str, int], Parts],
    number: int,
    exact: Mapping[str, torch.Tensor],
    found: Mapping[str, torch.Tensor],
) -> None:
    """Add the deviations of another run of the reference."""
    for name, tensor in found.items():
        if name in exact and tensor.shape == exact[name].shape:
            part = deviation(_real(tensor.detach()), exact[name].to(torch.float64))
            sums.setdefault((name, number), []).append(part)


def _unexplained(error: Slices, flips: Slices | None) -> Slices:
    """What is left of an error without what flips at kinks may change."""
    return error if flips is None else beyond(error, flips)


def _named(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach() for name, tensor in zip(names, tensors, strict=True)}


def _rows(tensor: torch.Tensor, piece: slice | None) -> torch.Tensor:
    return tensor if piece is None else tensor[piece]


def _first_row(piece: slice | None) -> int:
    return 0 if piece is None else int(piece.start)


def _is_floating(dtype: str) -> bool:
    return bool(getattr(torch, dtype).is_floating_point)


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """Integers and truth values as float64; floating tensors as they are."""
    return tensor if tensor.is_floating_point() else tensor.to(torch.float64)


def badness(report: TensorReport) -> tuple[bool, float]:
    """What the worst report of a tensor has most of: failing before passing, then the share of its budget."""
    return not report.ok, report.share or 0.0


def _finite(errors: Errors) -> Errors:
    """Eager may itself overflow somewhere; that never widens a budget."""
    return Errors(*(value if math.isfinite(value) else 0.0 for value in errors))
