"""Checks that outputs vary, and that every input and parameter influences them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from harness.errors import ProblemError
from harness.judge.compare.comparison import Comparison
from harness.judge.inputs.copying import copied
from harness.judge.inputs.draws import Draw, derive_seed
from harness.judge.reference.equivalence import deviation, magnitude, relative
from harness.judge.reference.reference import FORMS_CHANGE
from harness.judge.validation.check_types import CheckFinding
from harness.judge.validation.wrong_answers import Trials, figures, output_words
from harness.project.problems import Problem
from harness.wire.variations import is_differentiable, with_operators

#: Variation below this is none to the tolerance of 1e-2, which benchmarks of kernels commonly use.
BARELY = 1e-2
#: The most samples in the test of influence, if samples are independent.
SAMPLES = 8


def variation(problem: Problem, trials: Trials) -> Iterator[CheckFinding]:
    """Check that draws have the same form, and that outputs vary over draws and over the batch.

    Variation is the coefficient of variation, with the spread over the RMS, so that a mean of zero
    does no harm. For integers it is the share of elements that differ.

    Raises:
        ProblemError: The form changes from draw to draw.
    """
    first = trials.outputs(trials.draws[0])
    over_draws = [0.0] * len(first)
    for draw in trials.draws[1:]:
        other = trials.outputs(draw)
        if [output.shape for output in other] != [output.shape for output in first]:
            raise ProblemError(f"{problem.path}: {FORMS_CHANGE}")
        over_draws = list(map(max, over_draws, map(_spread, other, first)))
    independent = trials.forward.samples_are_independent(trials.draws[0], trials.seed)
    least: dict[str, float] = {}
    fine = True
    for place, output in enumerate(first):
        if not output.numel():
            continue
        over = {"draws": over_draws[place]}
        if independent:
            over["the batch"] = _spread(output[:1].expand_as(output), output)
        for kind, value in over.items():
            least[kind] = min(value, least.get(kind, math.inf))
            if not value >= BARELY:
                fine = False
                words = f"{output_words(place, len(first))} barely varies over {kind}: coefficient of variation"
                yield CheckFinding(None, f"{words} {value:.1e}; a wrong answer may be this close")
    if fine:
        told = ", ".join(f"{value:.1e} over {kind}" for kind, value in least.items())
        yield CheckFinding(
            True, f"other draws give the same shapes, and different outputs; coefficient of variation {told}"
        )


def influence(trials: Trials) -> Iterator[CheckFinding]:
    """Check that replacing each parameter or input by another draw's changes some output."""
    draw = _few(trials, trials.draws[0])
    other = _few(trials, trials.draws[1])
    model, others = copied(draw.model), dict(other.model.named_parameters())
    generator = torch.Generator().manual_seed(derive_seed(str(trials.seed), "influence"))
    comparison, _ = trials.comparison(draw)
    changes: dict[str, float] = {}
    fine = True
    for name, changed in _changed_draws(draw, other, model, others, generator):
        if changed is None:
            found: CheckFinding | None = CheckFinding(None, f"{name} has only one value: its influence is unknown")
        else:
            found = _found(trials, comparison, name, changed, changes)
        if found is not None:
            fine = False
            yield found
    same = list(_constant_inputs(trials.draws))
    for name in same if len(same) < len(draw.inputs) else ():  # all of them are a finding about seeds
        fine = False
        yield CheckFinding(
            None, f"{name} is the same in every draw, so a candidate may ignore it: draw other values in get_inputs"
        )
    if fine:
        least = min(changes, key=changes.__getitem__, default=None)
        told = f"; the smallest change, by {least}, is {changes[least]:.1e} (relative L2)" if least is not None else ""
        yield CheckFinding(
            True, f"each parameter and input, drawn again, changes an output by more than its budget{told}"
        )


def _constant_inputs(draws: Sequence[Draw]) -> Iterator[str]:
    """Yield the names of inputs, tensors or numbers, that no draw changes."""
    names = draws[0].input_names()
    for position, value in enumerate(draws[0].inputs):
        others = [draw.inputs[position] for draw in draws[1:]]
        if isinstance(value, torch.Tensor):
            is_same = value.numel() > 0 and all(
                torch.equal(with_operators(value), with_operators(one)) for one in others
            )
        else:
            is_same = isinstance(value, bool | int | float) and all(value == other for other in others)
        if is_same:
            yield names.get(position, f"inputs[{position}]")


def _found(
    trials: Trials, comparison: Comparison, name: str, changed: Draw, changes: dict[str, float]
) -> CheckFinding | None:
    """Describe a leaf without influence; None for one with influence, whose change is recorded."""
    try:
        outputs = trials.outputs(changed)
    except ProblemError as error:
        return CheckFinding(None, f"{name} alone cannot be drawn again, so its influence is unknown: {error}")
    reports = comparison.of_other_outputs(outputs)
    if any(not report.ok for report in reports):
        changes[name] = max(math.inf if report.l2_error is None else report.l2_error for report in reports)
        return None
    largest = max(reports, key=lambda report: report.share or 0.0)
    return CheckFinding(None, f"{name}, drawn again, changes no output by more than its budget: {figures(largest)}")


def _changed_draws(
    draw: Draw,
    other: Draw,
    model: torch.nn.Module,
    others: dict[str, torch.nn.Parameter],
    generator: torch.Generator,
) -> Iterator[tuple[str, Draw | None]]:
    """Yield the draw with one parameter or input replaced; None if it has only one value."""
    for name, parameter in model.named_parameters():
        value = _other_value(parameter.detach(), others[name].detach(), generator)
        if value is None:
            yield name, None
            continue
        before = parameter.detach().clone()
        with torch.no_grad():
            parameter.copy_(value)
        yield name, replace(draw, model=model)
        with torch.no_grad():
            parameter.copy_(before)
    names = draw.input_names()
    for position, value in enumerate(draw.inputs):
        if isinstance(value, torch.Tensor) and value.numel():
            fresh = _other_value(value, other.inputs[position], generator)
            inputs = [fresh if place == position else kept for place, kept in enumerate(draw.inputs)]
            name = names.get(position, f"inputs[{position}]")
            yield name, None if fresh is None else replace(draw, inputs=inputs)


def _other_value(value: torch.Tensor, other: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
    """Return another draw's value; if it is the same, its elements permuted, or made smaller."""
    if not _is_equal(value, other):
        return other
    order = torch.randperm(value.numel(), generator=generator).to(value.device)
    shuffled = value.flatten()[order].reshape(value.shape)
    if not _is_equal(value, shuffled):
        return shuffled
    if is_differentiable(value) and bool((value != 0).any()):
        factors = torch.rand(value.shape, generator=generator).to(value.device, value.dtype)
        return value * (1 + factors) / 2
    return None


def _is_equal(value: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(with_operators(value), with_operators(other))


def _few(trials: Trials, draw: Draw) -> Draw:
    """Return the draw with few samples, if these are independent."""
    batch = draw.batch
    if batch is None or batch <= SAMPLES or not trials.forward.samples_are_independent(draw, trials.seed):
        return draw
    inputs = [
        value[:SAMPLES] if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == batch else value
        for value in draw.inputs
    ]
    return replace(draw, inputs=inputs)


def _spread(other: torch.Tensor, output: torch.Tensor) -> float:
    if not output.numel():
        return 0.0
    if not output.is_floating_point():
        return float((other != output).double().mean())
    # A difference of two draws has twice the variance of one.
    return relative(deviation(other, output), magnitude(output)).l2 / math.sqrt(2)
