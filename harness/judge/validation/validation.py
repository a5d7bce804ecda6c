"""Validates a problem: its reference runs, repeats itself, and tells right answers from wrong.

The judge draws and evaluates every case by the same code as for a candidate. The problem's own code
is trusted and runs in this process. Whatever it raises is a finding. ``wrong_answers`` and
``sensitivity`` have the last checks.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from harness.errors import HarnessError, ProblemError
from harness.judge.compare.comparison import COMPLEX
from harness.judge.exchange.exchange import Exchange, TensorForm
from harness.judge.inputs.draws import Draw, cotangents, derive_seed, draw, draw_inputs, init_args
from harness.judge.inputs.memory_fit import Size, case_memory, free_memory, shortage, size_of, why_not
from harness.judge.inputs.shrinking import LARGEST_LOAD, small_case
from harness.judge.reference.equivalence import (
    FLOORS,
    NO_ERROR,
    Errors,
    Slices,
    deviation,
    joined,
    judge,
    magnitude,
    relative,
)
from harness.judge.reference.graph import Graph
from harness.judge.reference.kink_modes import Watcher, Watching
from harness.judge.reference.kinks import Kinks
from harness.judge.reference.reference import EXACT_SHARE, Reference
from harness.judge.reference.second_call import check_second_call, check_without_autograd
from harness.judge.trials.further_draws import DrawSource, declared_draws
from harness.judge.validation.check_types import STRUCTURE, CheckFinding, ProblemCheck, bad_structure
from harness.judge.validation.sensitivity import influence, variation
from harness.judge.validation.value_checks import all_empty, layouts_lost
from harness.judge.validation.wrong_answers import Trials, answers, gradients, precision_class
from harness.project import problems
from harness.project.cases import SMALL_CASE
from harness.project.excerpt import hidden_constants
from harness.project.problems import Problem, ProblemModule, fault_of
from harness.system.interrupts import Interrupted
from harness.system.memory import size_text
from harness.wire.arena import dtype_name
from harness.wire.structure import ROOT, TENSOR, paths_of
from harness.wire.variations import is_finite

#: The secret of all seeds, fixed so that the same command repeats its result.
_SECRET = "validate"
#: The checks that tell whether a wrong answer would pass, and those that they need.
_FITNESS = frozenset({"body", "model", "inputs", "seeds", "forward", "answers"})
#: A gradient below this share of the largest one is zero but for float64 rounding.
_ROUNDING = 1e-12


def validate(
    problem: Problem,
    device: torch.device,
    cases: Mapping[str, dict[str, Any]],
    begins: Callable[[str], None] = lambda _: None,
) -> Iterator[ProblemCheck]:
    """Check a problem.

    Args:
        problem: The problem.
        device: The device to run on.
        cases: Constants by case name; empty for all cases that fit the device.
        begins: Called with the name of each case before its checks.

    Yields:
        Each result as soon as it is known. A case ends at the first result that keeps it from going
        on.
    """
    chosen = cases or problem.cases
    count = f"{len(problem.cases)} case{'s' if len(problem.cases) > 1 else ''}"
    yield ProblemCheck(STRUCTURE, True, f"Model, get_inputs, get_init_inputs; {count}; precision {problem.precision}")
    try:
        hidden = hidden_constants(problem)
    except ProblemError as error:
        yield bad_structure(error)
        return
    if hidden:
        yield ProblemCheck(
            STRUCTURE,
            None,
            f"Model reads {', '.join(hidden)}, which cases replace. A solution cannot see these values: pass "
            "them to the constructor through get_init_inputs()",
        )
    if not cases:
        begins(next(iter(problem.cases)))
        memory_bytes = case_memory(device)
        try:
            small = small_case(problem, memory_bytes)
        except ProblemError:  # the check `body` says why
            small = None
        if small is not None and memory_bytes is None and small.load > LARGEST_LOAD:
            words = f"does not fit the CPU, even with {small.words or 'its own sizes'}; use --set, or a GPU"
            yield ProblemCheck("cases", False, words)
            return
        if small is not None and small.constants:
            chosen = {SMALL_CASE: small.constants}
            yield ProblemCheck("cases", True, f"a smaller one for this device: {small.words}", SMALL_CASE)
    ran = False
    for name, constants in chosen.items():
        begins(name)
        case = _Case(problem, name, constants, device, forced=bool(cases))
        for check in case.checks():
            yield ProblemCheck(check.name, check.ok, check.found, name)
        ran |= case.fits
    if not ran:
        yield ProblemCheck(
            "cases",
            False,
            "no case fits this machine: add one with smaller constants to CASES, or force one with --case NAME",
        )


def unfit_reasons(
    problem: Problem, case: str, constants: dict[str, Any], device: torch.device
) -> tuple[str, ...] | None:
    """Run the checks of a case that tell whether a wrong answer would pass.

    These are the part of ``validate`` that ``_FITNESS`` names, on the same draws.

    Args:
        problem: The problem.
        case: The case's name.
        constants: The constants that it replaces.
        device: The device to run on.

    Returns:
        The reasons why the case is unfit. None if the checks could not finish, for example for lack
        of memory.
    """
    one = _Case(problem, case, constants, device, forced=True)
    reasons = tuple(check.found for check in one.checks(_FITNESS) if check.ok is False)
    return None if one.has_failed else reasons


class _Stop(Exception):
    """The case cannot go on, and a finding says why."""


class _Case:
    """The checks of one case, in order; each uses the results of those before it.

    Args:
        problem: The problem.
        name: The case's name.
        constants: The constants that it replaces.
        device: The device to run on.
        forced: Whether the user asked for this case, whatever its size.

    Attributes:
        fits: Whether the device has room for it.
        has_failed: Whether a check ended by an error and not by a finding.
    """

    _module: ProblemModule
    _args: list[Any]
    _draws: list[Draw]
    _graph: Graph
    _trials: Trials

    def __init__(self, problem: Problem, name: str, constants: dict[str, Any], device: torch.device, forced: bool):
        self.fits = True
        self.has_failed = False
        self._problem = problem
        self._name = name
        self._constants = constants
        self._device = device
        self._forced = forced
        self._seed = derive_seed(_SECRET, "forward")
        memory = free_memory(device) // EXACT_SHARE
        self._reference, self._without_graphs = (Reference(problem, graphs, memory, device) for graphs in (True, False))
        self._vacuous: set[str] = set()

    def checks(self, wanted: Collection[str] | None = None) -> Iterator[ProblemCheck]:
        """Run the checks, or those in ``wanted``, until one finds that the case cannot go on."""
        steps: dict[str, Callable[[], Iterator[CheckFinding]]] = {
            "body": self._body,
            "memory": self._memory,
            "model": self._model,
            "inputs": self._inputs,
            "seeds": self._seeds,
            "forward": self._forward,
            "repeat": self._repeat,
            "exact": self._exact,
            "draws": lambda: variation(self._problem, self._trials),
            "answers": self._answers,
            "influence": lambda: influence(self._trials),
            "class": lambda: precision_class(self._trials),
            "gradients": lambda: gradients(self._trials, self._vacuous),
            "further": self._further_draws,
        }
        for name, step in steps.items():
            if wanted is not None and name not in wanted:
                continue
            try:
                for found in step():
                    yield ProblemCheck(name, found.ok, found.words)
            except _Stop:
                return
            except torch.OutOfMemoryError as error:
                self.fits, self.has_failed = False, True
                words = shortage(self._problem, self._name, self._constants, self._device, error)
                yield ProblemCheck(name, None, f"does not fit: {words}")
                return
            except HarnessError as error:
                self.has_failed = True
                yield ProblemCheck(name, False, str(error))
                return
            except Interrupted:
                raise
            # The problem's code may raise anything.
            except BaseException as error:
                fault = fault_of(self._problem, error)
                if fault is None:
                    raise
                self.has_failed = True
                yield ProblemCheck(name, False, str(fault))
                return

    def _body(self) -> Iterator[CheckFinding]:
        self._module = problems.load(self._problem, self._constants)
        self._reference.same_generator = self._module.same_generator
        settings = ", ".join(f"{name}={value!r}" for name, value in self._constants.items())
        yield CheckFinding(True, f"runs with {settings}" if settings else "runs unchanged")

    def _memory(self) -> Iterator[CheckFinding]:
        size = size_of(self._problem, self._constants)
        on_cpu, free = self._device.type == "cpu", free_memory(self._device)
        is_chosen = self._name == SMALL_CASE
        reason = why_not(size, free, is_chosen) if on_cpu and not self._forced else None
        if reason is not None:
            self.fits = False
            yield CheckFinding(None, f"left out on the CPU: {reason}; force it with --case {self._name}")
            raise _Stop
        if size is None:
            yield CheckFinding(
                None, "unknown: the reference does not run on torch's meta device, where nothing is allocated"
            )
        elif not on_cpu and size.device_bytes > free:
            yield CheckFinding(None, f"{_size_words(size)}, but only {size_text(free)} are free: it may not fit")
        else:
            yield CheckFinding(True, _size_words(size))

    def _model(self) -> Iterator[CheckFinding]:
        self._args = init_args(self._problem, self._module, derive_seed(_SECRET, "init"))
        self._draws = [self._draw(0)]
        state = self._draws[0].state
        tensors = ", ".join(f"{tensor.name} {_form(tensor.shape, tensor.dtype)}" for tensor in state)
        yield CheckFinding(True, f"constructs; {tensors or 'no parameters or buffers'}")

    def _inputs(self) -> Iterator[CheckFinding]:
        inputs = self._draws[0].inputs
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        if not tensors:
            yield CheckFinding(False, "get_inputs() returns no tensor, so a kernel has no input")
            raise _Stop
        yield CheckFinding(True, ", ".join(_value_words(value) for value in inputs))
        if not all(map(is_finite, tensors)):
            yield CheckFinding(None, "some inputs are NaN or infinite")
        for words in layouts_lost(inputs):
            yield CheckFinding(None, words)

    def _seeds(self) -> Iterator[CheckFinding]:
        again, other = self._draw(0), self._draw(1)
        first = self._draws[0]
        if not (_same_inputs(first, again) and _same_parameters(first, again)):
            yield CheckFinding(
                False,
                "the same seed gives different inputs or parameters: draw with torch, random or numpy.random, not from "
                "the time, the system or your own generator",
            )
        else:
            yield CheckFinding(True, "the same seed gives the same draw")
        if _same_inputs(first, other):
            yield CheckFinding(None, "inputs are the same for every seed: a candidate can hard-code the answer")
        self._draws.append(other)

    def _forward(self) -> Iterator[CheckFinding]:
        watcher = Watcher()
        self._graph = self._reference.eager(self._draws[0], self._seed, Watching(watcher))
        self._reference.check_randomness(self._draws[0], self._seed, self._graph)
        self._without_graphs.is_random = self._reference.is_random
        check_without_autograd(self._problem, self._reference, self._draws[0], self._seed, self._graph)
        again = self._reference.eager(self._draws[0], self._seed)
        check_second_call(self._problem, self._reference, self._draws[0], self._seed, again)
        del again
        outputs = self._graph.outputs
        if any(output.is_complex() for output in outputs):
            yield CheckFinding(False, COMPLEX)
            raise _Stop
        self._check_crossing()
        forms = ", ".join(_form(output.shape, dtype_name(output.dtype)) for output in outputs)
        kind = self._graph.structure[0].kind
        yield CheckFinding(True, f"returns {'' if kind == TENSOR else f'a {kind}: '}{forms}")
        if words := all_empty(outputs):
            yield CheckFinding(False, words)
            raise _Stop
        for position in self._graph.written_inputs:
            yield CheckFinding(
                None, f"forward changes input {position} in place, which no solution may do: return a changed copy"
            )
        self._draws.append(self._draw(2))
        kinks = Kinks(self._without_graphs, self._problem.precision, self._fresh_inputs) if watcher.found else None
        self._trials = Trials(
            self._reference, self._without_graphs, self._problem.precision, self._draws, seed=self._seed, kinks=kinks
        )
        for name, output in zip(self._names(), outputs, strict=True):
            broken = output.numel() - int(torch.isfinite(output).sum())
            if 0 < broken < output.numel():
                yield CheckFinding(None, f"{name}: {broken} of {output.numel()} elements are NaN or infinite")

    def _repeat(self) -> Iterator[CheckFinding]:
        """Evaluate the same draw twice; the results may differ by rounding, and by no more."""
        again = self._reference.eager(self._draws[0], self._seed)
        pairs = dict(zip(self._names(), zip(self._graph.outputs, again.outputs, strict=True), strict=True))
        if _is_differentiable(self._graph):
            first, second = (graph.gradients(next(cotangents(graph.outputs, 0))[1]) for graph in (self._graph, again))
            pairs |= {
                f"the gradient of {name}": (one, other)
                for name, one in first.items()
                if one is not None and (other := second[name]) is not None
            }
        differing = {name: pair for name, pair in pairs.items() if not _same(*pair)}
        forgets = False
        for name, (one, other) in differing.items():
            exact = one.detach().to(torch.float64)
            errors = relative(deviation(other.detach().to(torch.float64), exact), magnitude(exact))
            fine = self._passes(errors)
            why = (
                "the order of summation, which the budget allows for" if fine else "the reference is not deterministic"
            )
            words = f"{name} differs from run to run by {errors.l2:.1e} (relative L2): {why}"
            yield CheckFinding(None if fine else False, words)
            forgets |= not fine
        if forgets:
            raise _Stop  # A reference that does not repeat itself can judge nothing.
        if not differing:
            yield CheckFinding(True, "a second run gives the same bits, outputs and gradients")

    def _exact(self) -> Iterator[CheckFinding]:
        """Evaluate in float64, as the judge does; outputs and gradients of zero prove nothing."""
        exact = self._reference.exact(self._draws[0], self._seed)
        scales: dict[str, list[Slices]] = {name: [] for name in self._names()}
        leaves: dict[str, dict[str, list[Slices]]] = {}
        parameters: dict[str, dict[str, torch.Tensor]] = {}
        unused: set[str] = set()
        of_inputs = set(self._draws[0].input_names().values())
        for piece in exact.pieces:
            graph = exact.graph(piece)
            for name, output in zip(scales, graph.outputs, strict=True):
                scales[name].append(magnitude(output.detach().to(torch.float64)))
            if not _is_differentiable(graph):
                continue
            for cotangent, tensors in cotangents(graph.outputs, 0):
                for name, gradient in graph.gradients(tensors).items():
                    if gradient is None:
                        unused.add(name)
                    elif name in of_inputs:
                        leaves.setdefault(name, {}).setdefault(cotangent, []).append(magnitude(gradient))
                    else:
                        sums = parameters.setdefault(name, {})
                        sums[cotangent] = sums[cotangent] + gradient if cotangent in sums else gradient
        for name, sums in parameters.items():
            leaves[name] = {cotangent: [magnitude(total)] for cotangent, total in sums.items()}
        pieces = f" in {len(exact.pieces)} pieces" if len(exact.pieces) > 1 else ""
        yield CheckFinding(
            True, f"runs in float64{pieces}, forward and backward" if leaves else f"runs in float64{pieces}"
        )
        whole = {name: joined(parts) for name, parts in scales.items() if self._is_floating(name)}
        nothing = [name for name, sums in whole.items() if sums.elements and sums.rms == 0]
        for name in nothing:
            yield CheckFinding(False, f"{name} is zero everywhere, or not finite: comparing it proves nothing")
        yield from self._gradient_words(leaves, unused)
        if nothing:
            raise _Stop

    def _answers(self) -> Iterator[CheckFinding]:
        del self._graph  # The following checks need the memory.
        yield from answers(self._trials)

    def _gradient_words(self, leaves: dict[str, dict[str, list[Slices]]], unused: set[str]) -> Iterator[CheckFinding]:
        if not leaves:
            yield CheckFinding(None, "no output has a gradient: only outputs are judged")
            return
        largest = {name: max(joined(parts).rms for parts in found.values()) for name, found in leaves.items()}
        bound = _ROUNDING * max(largest.values())
        for name, rms in largest.items():
            if not rms > bound:
                self._vacuous.add(name)
                yield CheckFinding(
                    None, f"the gradient of {name} is zero for every cotangent: comparing it proves nothing"
                )
        for name in sorted(unused - set(leaves)):
            yield CheckFinding(None, f"{name} has no gradient")

    def _further_draws(self) -> Iterator[CheckFinding]:
        source = DrawSource(self._problem, self._module, self._args, self._device)
        yield from itertools.starmap(CheckFinding, declared_draws(source, self._reference, self._seed))

    def _draw(self, number: int) -> Draw:
        seed = derive_seed(_SECRET, "draw", number)
        return draw(self._problem, self._module, self._args, seed, self._device)

    def _fresh_inputs(self, seed: int) -> list[Any]:
        return draw_inputs(self._problem, self._module, seed, self._device)

    def _check_crossing(self) -> None:
        """Check that all arguments and inputs can be passed to a candidate.

        Raises:
            ProblemError: An argument or an input cannot.
        """
        first = self._draws[0]
        forms = [TensorForm(output.shape, output.dtype) for output in self._graph.outputs]
        exchange = Exchange(
            self._args, first.inputs, first.state, forms, {}, input_names=first.input_names(), device=self._device
        )
        with contextlib.closing(exchange):
            exchange.write_inputs(self._draws[1].inputs)

    def _names(self) -> list[str]:
        return ["the output" if path == ROOT else path for path in paths_of(self._graph.structure)]

    def _is_floating(self, name: str) -> bool:
        return self._graph.outputs[self._names().index(name)].is_floating_point()

    def _passes(self, errors: Errors) -> bool:
        return judge(errors, NO_ERROR, FLOORS[self._problem.precision]).ok


def _is_differentiable(graph: Graph) -> bool:
    return bool(graph.leaves) and any(output.requires_grad for output in graph.outputs)


def _same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two tensors are equal, with NaN equal to NaN."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    return bool(((first == second) | ((first != first) & (second != second))).all())


def _same_inputs(first: Draw, second: Draw) -> bool:
    pairs = list(zip(first.inputs, second.inputs, strict=False))
    tensors = [pair for pair in pairs if isinstance(pair[0], torch.Tensor) and isinstance(pair[1], torch.Tensor)]
    return len(first.inputs) == len(second.inputs) and all(_same(*pair) for pair in tensors)


def _same_parameters(first: Draw, second: Draw) -> bool:
    ours, theirs = first.model.state_dict(), second.model.state_dict()
    return ours.keys() == theirs.keys() and all(_same(ours[name], theirs[name]) for name in ours)


def _size_words(size: Size) -> str:
    on_cpu, on_gpu = size_text(size.peak_bytes), size_text(size.device_bytes)
    return f"{size.elements:,} elements; at the peak about {on_cpu} on the CPU, {on_gpu} on a GPU"


def _value_words(value: Any) -> str:
    return _form(value.shape, dtype_name(value.dtype)) if isinstance(value, torch.Tensor) else repr(value)


def _form(shape: Sequence[int], dtype: str) -> str:
    return f"{dtype} ({', '.join(map(str, shape))})"
