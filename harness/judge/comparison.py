"""What a candidate returned in one trial, against the reference: deviations first, then reports.

The exact evaluation comes in pieces where memory is short; deviations are sums over slices of dimension 0, so that
pieces join without loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from harness.judge.draws import Draw
from harness.judge.equivalence import (
    FLOORS,
    NO_ERROR,
    Errors,
    Slices,
    deviation,
    first_difference,
    joined,
    judge,
    magnitude,
    relative,
)
from harness.judge.reference import Reference, input_names, unpermuted
from harness.records import PrecisionClass, TensorReport
from harness.wire.arena import dtype_name

Parts = list[Slices]


@dataclass
class TrialResult:
    """What one trial found.

    Attributes:
        outputs: A report per output.
        gradients: A report per leaf that the reference differentiates.
        words: For a failing tensor, where its largest error is.
        lower_class: For a failing tensor, the lower precision class that it would pass in.
    """

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
        eager: Eager's deviations.
        note: What is wrong with the tensor's form, and under which cotangent.
    """

    shape: tuple[int, ...]
    dtype: str
    scale: Slices | None = None
    received: dict[str, tuple[Slices, str]] = field(default_factory=dict)
    eager: Parts = field(default_factory=list)
    note: tuple[str, str] | None = None


class Comparison:
    """Compares one trial.

    Args:
        reference: Evaluates the reference.
        draw: The trial's draw.
        seed: Seed of whatever a forward draws.
        leaves: The leaves whose gradients are judged.
        precision: The class under which errors are judged.
        trial: The trial's number, for reports.
    """

    def __init__(
        self,
        reference: Reference,
        draw: Draw,
        seed: int,
        leaves: Sequence[str],
        precision: PrecisionClass,
        trial: int,
    ):
        self._reference = reference
        self._draw = draw
        self._seed = seed
        self._leaves = leaves
        self._precision = precision
        self._trial = trial
        self._exact = reference.exact(draw, seed)
        self._inputs = set(input_names(draw).values())
        self._outputs: dict[str, _Judged] = {}
        self._gradients: dict[str, _Judged] = {}
        self._result = TrialResult()

    def add_outputs(self, received: Sequence[torch.Tensor]) -> None:
        """Compare the outputs (private copies), the candidate's and those of the eager runs.

        Raises:
            ProblemError: The reference does not run.
        """
        names = ["output"] if len(received) == 1 else [f"output[{index}]" for index in range(len(received))]
        for name, tensor in zip(names, received, strict=True):
            self._outputs[name] = _Judged(tuple(tensor.shape), dtype_name(tensor.dtype))
        self._compare("", self._outputs, dict(zip(names, received, strict=True)), self._exact_outputs(names), False)
        for graph, order in self._reference.eager_runs(self._draw, self._seed):
            outputs = {
                name: unpermuted(tensor.detach(), order) for name, tensor in zip(names, graph.outputs, strict=True)
            }
            self._compare("", self._outputs, outputs, self._exact_outputs(names), True)

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
        exact = self._exact_gradients(cotangent)
        self._compare(cotangent_name, self._gradients, tensors, exact, False)
        for graph, order in self._reference.eager_runs(self._draw, self._seed):
            permuted = [part if order is None else part[order.to(part.device)] for part in cotangent]
            gradients = {
                name: unpermuted(gradient, order) if name in self._inputs else gradient
                for name, gradient in graph.gradients(permuted).items()
                if gradient is not None
            }
            self._compare(cotangent_name, self._gradients, gradients, self._exact_gradients(cotangent), True)

    def result(self) -> TrialResult:
        """The reports of everything that was added."""
        for name, judged in self._outputs.items():
            self._result.outputs.append(self._report(name, judged))
        for name, judged in self._gradients.items():
            self._result.gradients.append(self._report(name, judged))
        return self._result

    def _exact_outputs(self, names: Sequence[str]) -> Iterator[tuple[slice | None, dict[str, torch.Tensor]]]:
        for piece in self._exact.pieces:
            outputs = self._exact.graph(piece).outputs
            yield piece, {name: output.detach() for name, output in zip(names, outputs, strict=True)}

    def _exact_gradients(
        self, cotangent: Sequence[torch.Tensor]
    ) -> Iterator[tuple[slice | None, dict[str, torch.Tensor]]]:
        """Gradients of inputs piece by piece; those of parameters last, summed over the pieces."""
        totals: dict[str, torch.Tensor] = {}
        for piece in self._exact.pieces:
            part = [one if piece is None else one[piece] for one in cotangent]
            found = self._exact.graph(piece).gradients(part)
            gradients = {name: gradient for name, gradient in found.items() if gradient is not None}
            if piece is None:
                yield None, gradients
                return
            yield piece, {name: gradient for name, gradient in gradients.items() if name in self._inputs}
            for name, gradient in gradients.items():
                if name not in self._inputs:
                    totals[name] = totals[name] + gradient if name in totals else gradient
        yield None, totals

    def _compare(
        self,
        cotangent: str,
        judged: Mapping[str, _Judged],
        tensors: Mapping[str, torch.Tensor],
        exact: Iterator[tuple[slice | None, dict[str, torch.Tensor]]],
        is_eager: bool,
    ) -> None:
        """Add deviations of some tensors from the exact ones, and the scale where the candidate's are compared."""
        parts: dict[str, Parts] = {}
        scales: dict[str, Parts] = {}
        words: dict[str, tuple[float, str]] = {}
        for piece, expected in exact:
            for name, wanted in expected.items():
                if name not in judged:
                    continue
                scale = magnitude(wanted.to(torch.float64))
                scales.setdefault(name, []).append(scale)
                if name not in tensors:
                    continue
                mine = tensors[name] if piece is None else tensors[name][piece]
                part = deviation(mine, wanted.to(torch.float64))
                parts.setdefault(name, []).append(part)
                largest = float(part.maximum.max())
                if not is_eager and largest > words.get(name, (0.0, ""))[0] and not self._fits(part, scale):
                    first_row = 0 if piece is None else piece.start
                    words[name] = (largest, first_difference(mine, wanted.to(torch.float64), first_row))
        for name, pieces in parts.items():
            if is_eager:
                judged[name].eager.append(joined(pieces))
            else:
                judged[name].received[cotangent] = (joined(pieces), words.get(name, (0.0, ""))[1])
        if not is_eager:
            for name, pieces in scales.items():
                whole = joined(pieces)
                before = judged[name].scale
                judged[name].scale = whole if before is None else before.larger(whole)

    def _fits(self, part: Slices, scale: Slices) -> bool:
        return judge(relative(part, scale), NO_ERROR, FLOORS[self._precision]).ok

    def _report(self, name: str, judged: _Judged) -> TensorReport:
        """The report of a tensor: its worst cotangent, a failing one before all others."""
        blank = TensorReport(name, judged.shape, judged.dtype, False, trial=self._trial)
        if judged.note is not None:
            note, cotangent = judged.note
            self._result.words[name] = note
            return replace(blank, note=note, cotangent=cotangent)
        assert judged.scale is not None
        yardstick = NO_ERROR
        for part in judged.eager:
            yardstick = yardstick.worst(_finite(relative(part, judged.scale)))
        worst: TensorReport | None = None
        for cotangent, (error, words) in judged.received.items():
            errors = relative(error, judged.scale)
            report = self._judge(replace(blank, cotangent=cotangent or None), judged, error, errors, yardstick)
            if worst is None or _badness(report) > _badness(worst):
                worst = report
                if not report.ok:
                    self._result.words[name] = words
        assert worst is not None
        return worst

    def _judge(
        self, blank: TensorReport, judged: _Judged, error: Slices, errors: Errors, yardstick: Errors
    ) -> TensorReport:
        assert judged.scale is not None
        if judged.scale.rms == 0 and blank.cotangent:
            finite = bool(torch.isfinite(error.maximum).all())
            return replace(
                blank, ok=finite, note="the reference's gradient is zero for every cotangent: it says nothing"
            )
        if not getattr(torch, judged.dtype).is_floating_point:
            same = float(error.maximum.max()) <= max((float(part.maximum.max()) for part in judged.eager), default=0.0)
            return replace(blank, ok=same, note="" if same else "differs; it must be equal")
        verdict = judge(errors, yardstick, FLOORS[self._precision])
        if not verdict.ok:
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


def _badness(report: TensorReport) -> tuple[bool, float]:
    return not report.ok, report.share or 0.0


def _finite(errors: Errors) -> Errors:
    """Eager may itself overflow somewhere; that never widens a budget."""
    return Errors(*(value if math.isfinite(value) else 0.0 for value in errors))
