"""Draws a case: runs the problem's body, makes the first draw, the reference's evaluator and the arena."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.judge.case_context import CaseContext
from harness.judge.compare.trial_result import TrialResult
from harness.judge.exchange.exchange import Exchange, TensorForm
from harness.judge.inputs.draws import Draw, constant, derive_seed, draw, init_args
from harness.judge.inputs.memory_fit import spare_memory
from harness.judge.integrity import Integrity
from harness.judge.policy import Policy
from harness.judge.process.candidate_stopped import UnmatchedState
from harness.judge.process.faults import Faults
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.reference.graph import differentiable_leaves
from harness.judge.reference.kink_modes import Watcher, Watching
from harness.judge.reference.kinks import Kinks
from harness.judge.reference.reference import EXACT_SHARE, Reference
from harness.judge.reference.reference_cache import CaseCache, ReferenceCache, Shape
from harness.judge.reference.second_call import check_second_call, check_without_autograd
from harness.judge.reference.tf32 import Products, allowed_on, class_of_eager, judged_class
from harness.judge.reference.unsupported import unsupported
from harness.judge.trials.further_draws import DrawSource
from harness.judge.trials.trials import Plan
from harness.project import problems
from harness.project.problems import Problem, ProblemModule
from harness.records.record import Status
from harness.wire.commands import Construct
from harness.wire.structure import paths_of


@dataclass
class DrawnCase:
    """A case, with everything that is prepared before the candidate runs.

    Attributes:
        name: The case's name.
        problem: The problem, in the precision class in which it is judged.
        module: The problem's body, run under the case's constants.
        args: The constructor's arguments.
        first: The first draw.
        known: Cached results of the reference.
        reference: Evaluates the reference.
        shape: The number, shapes and dtypes of the reference's outputs, and its leaves.
        exchange: The arena.
        tf32: The record's ``tf32``.
    """

    name: str
    problem: Problem
    module: ProblemModule
    args: list[Any]
    first: Draw
    known: CaseCache
    reference: Reference
    shape: Shape
    exchange: Exchange
    tf32: dict[str, Any]

    def plain_inputs(self) -> list[Any]:
        """Returns the first draw's inputs, with None in place of tensors."""
        return [None if isinstance(value, torch.Tensor) else value for value in self.first.inputs]

    def precision_fields(self, results: Sequence[TrialResult]) -> dict[str, Any]:
        """Returns the record's fields about the precision class, with eager's by its error."""
        eager = class_of_eager(report for result in results for report in result.outputs)
        return {"precision_class": self.problem.precision, "tf32": {**self.tf32, "eager": eager}}

    def forget_inputs(self) -> None:
        """Releases the first draw's inputs, because timing needs their memory."""
        self.first = replace(self.first, inputs=[])


@dataclass(frozen=True)
class TrialSetup:
    """The setup of a case's trials, once the candidate's instance is there.

    Attributes:
        context: The case's context, for draws that all candidates of a batch share.
        own: The same for draws that only this candidate gets.
        source: Makes the draws.
        seeds: A seed for each trial's draw; the last is the candidate's own.
        own_seed: A seed for the candidate's own draw without gradients.
        construct: The command that made the candidate's instance.
        worker: The candidate's worker.
        is_brief: As in ``Plan``.
    """

    context: CaseContext
    own: CaseContext
    source: DrawSource
    seeds: list[int]
    own_seed: int
    construct: Construct
    worker: WorkerHandle
    is_brief: bool

    def plan(self, first: Draw) -> Plan:
        """Plans the trials; the first uses this draw."""
        return Plan(
            context=self.context,
            own=self.own,
            source=self.source,
            first=first,
            seeds=self.seeds,
            own_seed=self.own_seed,
            is_brief=self.is_brief,
        )


def draw_case(
    problem: Problem,
    policy: Policy,
    case: str,
    constants: dict[str, Any],
    *,
    shared: ReferenceCache,
    integrity: Integrity,
) -> DrawnCase:
    """Draws a case before the candidate runs.

    Args:
        problem: The problem.
        policy: How to judge.
        case: The case's name.
        constants: The problem's constants that the case replaces.
        shared: Cached results of references.
        integrity: The mode of each integrity rule.

    Raises:
        ProblemError: The problem is malformed or its reference does not run.
        DeviceMemoryError: The device has no room for the arena.
    """
    device = torch.device(policy.device)
    module = problems.load(problem, constants)
    args = init_args(problem, module, derive_seed(policy.secret, case, "init"))
    first = draw(problem, module, args, derive_seed(policy.secret, case, "draw", 0), device)
    known = shared.of(_key(problem, policy, case, constants))
    known.shared = 0
    memory = spare_memory(device) // EXACT_SHARE
    if known.reference is None or known.shape is None:
        reference = Reference(problem, not policy.forward_only, memory, device)
        reference.same_generator = module.same_generator
        known.shape = _shape(problem, reference, first, derive_seed(policy.secret, case, "shape"))
        known.reference = reference
    known.reference.grant(memory)
    shape, allowed = known.shape, allowed_on(device, policy.tf32)
    exchange = Exchange(
        args=args,
        inputs=first.inputs,
        state=first.state,
        outputs=shape.outputs,
        leaves={name: leaf for name, leaf in _leaf_tensors(first).items() if name in shape.leaves},
        input_names=first.input_names(),
        device=device,
        integrity=integrity,
    )
    return DrawnCase(
        name=case,
        problem=replace(problem, precision=judged_class(problem.precision, shape.products, allowed)),
        module=module,
        args=args,
        first=first,
        known=known,
        reference=known.reference,
        tf32={"products": sorted(shape.products), "allowed": sorted(allowed), "eager": None},
        shape=shape,
        exchange=exchange,
    )


def trial_setup(
    drawn: DrawnCase,
    policy: Policy,
    *,
    names: dict[str, str] | None,
    own_seed: str,
    trials: int,
    faults: Faults,
    construct: Construct,
    worker: WorkerHandle,
    is_brief: bool,
) -> TrialSetup:
    """Sets up the trials of a case.

    Args:
        drawn: The case.
        policy: How to judge.
        names: Map from the reference's parameter and buffer names to the candidate's; None if they
            do not match, so that the candidate keeps what its constructor made.
        own_seed: The secret from which the seeds of the candidate's own draws derive.
        trials: Number of trials.
        faults: Collects the emulator's reports.
        construct: The command that made the candidate's instance.
        worker: The candidate's worker.
        is_brief: As in ``Plan``.

    Raises:
        UnmatchedState: The candidate lacks a buffer that the reference changes.
    """
    buffers = () if names is None else _watched_buffers(drawn.reference.changes, names, drawn.exchange)
    source = DrawSource(drawn.problem, drawn.module, drawn.args, torch.device(policy.device))
    precision, secret = drawn.problem.precision, policy.secret
    kinks = own_kinks = None
    if drawn.shape.has_kinks:
        kinks = Kinks(drawn.reference, precision, source.fresh_inputs, drawn.known.steps)
        own_kinks = Kinks(drawn.reference, precision, source.fresh_inputs)
    context = CaseContext(
        exchange=drawn.exchange,
        reference=drawn.reference,
        names=names or {},
        leaves=drawn.shape.leaves,
        differentiable=drawn.shape.differentiable,
        structure=drawn.shape.structure,
        precision=precision,
        secret=f"{secret}:{drawn.name}",
        fresh_inputs=source.fresh_inputs,
        kinks=kinks,
        buffers=buffers,
        known=drawn.known,
        is_relaxed=policy.is_relaxed,
        faults=faults,
        unsupported=drawn.shape.unsupported,
    )
    # Results on draws that no other candidate gets are not cached.
    own = replace(context, secret=f"{own_seed}:{drawn.name}", kinks=own_kinks, known=CaseCache(), gauges_at_need=True)
    return TrialSetup(
        context=context,
        own=own,
        source=source,
        seeds=[
            *(derive_seed(secret, drawn.name, "draw", trial) for trial in range(trials - 1)),
            derive_seed(own_seed, drawn.name, "draw", trials - 1),
        ],
        own_seed=derive_seed(own_seed, drawn.name, "draw", "without gradients"),
        construct=construct,
        worker=worker,
        is_brief=is_brief,
    )


def _key(problem: Problem, policy: Policy, case: str, constants: dict[str, Any]) -> Hashable:
    """Returns the cache key: everything that a case's draws and its reference depend on."""
    file = str(problem.path.resolve()), problem.digest
    return *file, case, repr(sorted(constants.items())), policy.device, policy.secret, policy.forward_only, policy.tf32


def _shape(problem: Problem, reference: Reference, first: Draw, seed: int) -> Shape:
    """Runs the reference eagerly to learn the shapes of its outputs and its leaves."""
    watcher, products = Watcher(), Products()
    graph = reference.eager(first, seed, _both(products, Watching(watcher)))
    reference.check_randomness(first, seed, graph)
    check_without_autograd(problem, reference, first, seed, graph)
    leaves: tuple[str, ...] = ()
    if any(output.requires_grad for output in graph.outputs):
        leaves = tuple(differentiable_leaves(graph.gradients(constant(graph.outputs, 1.0))))
    forms = [TensorForm(output.shape, output.dtype) for output in graph.outputs]
    paths = zip(paths_of(graph.structure), graph.outputs, strict=True)
    shape = Shape(
        outputs=forms,
        leaves=leaves,
        differentiable=tuple(path for path, output in paths if output.requires_grad),
        structure=graph.structure,
        has_kinks=watcher.found,
        unsupported=unsupported(reference, first, seed, graph, leaves),
        products=frozenset(products.found),
    )
    check_second_call(problem, reference, first, seed, graph)
    return shape


@contextlib.contextmanager
def _both(first: AbstractContextManager[Any], second: AbstractContextManager[Any]) -> Iterator[None]:
    with first, second:
        yield


def _leaf_tensors(first: Draw) -> dict[str, torch.Tensor]:
    named = {name: first.inputs[position] for position, name in first.input_names().items()}
    return named | dict(first.model.named_parameters())


def _watched_buffers(changes: frozenset[str], names: dict[str, str], exchange: Exchange) -> tuple[str, ...]:
    """Selects the reference's buffers that the judge compares after a forward.

    Those are the ones that it changes, and those that the candidate has under the same name: it must leave them alone.

    Raises:
        UnmatchedState: The candidate lacks a buffer that the reference changes.
    """
    if missing := sorted(changes - names.keys()):
        raise UnmatchedState(
            Status.LOAD_ERROR,
            f"no buffer of ModelNew matches the reference's {', '.join(missing)}, which forward changes and "
            "the judge compares. Register it with register_buffer under the reference's name, or declare "
            f"PARAMETER_MAP = {{'name in ModelNew': 'name in Model'}}.",
        )
    return tuple(name for name in exchange.buffers if name in changes or names.get(name) == name)
