"""Names the lower precision class that accounts for a failing tensor's error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness.judge.compare.budgets import finite_only
from harness.judge.reference.equivalence import FLOORS, NO_ERROR, Errors, Slices, judge, relative
from harness.judge.reference.graph import Graph
from harness.judge.reference.reduced_precision import WAYS, Rounding, mantissa_bits, operands_floors
from harness.judge.reference.reference import Exact
from harness.judge.reference.reference_errors import Deviations
from harness.records.record import PrecisionClass

#: From this L2 error on, the judge does not ask whether a lower precision class explains the error.
GROSS = 2.0**-4

#: What rounding the operands of products changes, by class, tensor and cotangent.
RoundingEffects = dict[tuple[PrecisionClass, str, str], list[Errors]]


def classes_below(precision: PrecisionClass) -> list[PrecisionClass]:
    """Return the classes of lower precision, the next lower one first."""
    return [other for other in PrecisionClass if FLOORS[other].l2 > FLOORS[precision].l2]


def explaining_classes(
    wrong: Mapping[tuple[str, str], Errors], lower: Sequence[PrecisionClass], effects: RoundingEffects
) -> dict[str, PrecisionClass]:
    """Return the lower class that accounts for each tensor's error, by the tensor's name.

    Args:
        wrong: The errors of failing tensors, by name and cotangent ("" for an output).
        lower: The classes in question.
        effects: What rounding changes; empty to judge by the size of the error alone.
    """
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


def rounding_effects(
    exact: Exact,
    lower: Sequence[PrecisionClass],
    sought: Mapping[str, Deviations],
    rounded_run: Callable[[Rounding, slice | None], Graph],
    scale_of: Callable[[str, str], Slices | None],
) -> RoundingEffects:
    """Measure what rounding operands to lower classes changes.

    Args:
        exact: The exact evaluation.
        lower: The classes in question.
        sought: The tensors to measure, by the cotangent's name ("" for the outputs).
        rounded_run: Evaluates a piece in float64 with rounded operands of products.
        scale_of: Returns the magnitude of a tensor by its cotangent and name; None if unknown.
    """
    ways = [(other, bits, way) for other in lower if (bits := mantissa_bits(other)) for way, _ in WAYS]
    for piece in exact.pieces:
        graph = exact.graph(piece)
        for deviations in sought.values():
            deviations.begin(graph, piece)
        del graph
        for number, (_, bits, to_nearest) in enumerate(ways):
            mode = Rounding(bits, to_nearest)
            graph = rounded_run(mode, piece)
            for deviations in sought.values():
                with mode:
                    found = deviations.found("rounded", number, graph)
                deviations.book("rounded", number, found)
            del graph
    effects: RoundingEffects = {}
    for cotangent, deviations in sought.items():
        deviations.begin_totals()
        deviations.add_totals()
        for name, runs in deviations.whole.runs["rounded"].items():
            scale = scale_of(cotangent, name)
            for (other, _, _), run in zip(ways, runs, strict=True):
                if scale is not None:
                    effects.setdefault((other, name, cotangent), []).append(finite_only(relative(run, scale)))
    return effects
