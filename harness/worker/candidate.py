"""Loads and calls the candidate inside the worker."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from harness.wire.arena import Arena
from harness.wire.commands import (
    DEEP_COPY,
    EVALUATION,
    NON_LEAF,
    RETURNED,
    Backward,
    Forward,
    Loop,
    Slot,
    TimeCalls,
)
from harness.wire.state import switch_and_return
from harness.wire.structure import tensors_of
from harness.wire.tensors import Region, Value, input_key
from harness.wire.values import decode_plain
from harness.wire.variations import is_differentiable, with_gaps
from harness.worker import calling, clock
from harness.worker.calling import (
    PassedOn,
    accumulated,
    called,
    check_apart,
    differentiate,
    having_gradients,
    kept,
    partly_changed,
    replaced,
)
from harness.worker.construction import generators
from harness.worker.results import copied, store
from harness.worker.tally import BACKWARD, FORWARD

#: Calls before the worker captures a CUDA graph.
WARM_UP_CALLS = 3


class _Call(NamedTuple):
    """A prepared call of a loop: arguments, leaves, cotangents, result regions and seed."""

    arguments: list[Any]
    leaves: dict[str, torch.Tensor]
    cotangents: list[torch.Tensor]
    targets: list[torch.Tensor]
    seed: int


class _Loop(NamedTuple):
    """The prepared calls of a loop.

    If ``stored`` is set, the loop calls nothing and copies these tensors in place of results.
    """

    calls: list[_Call]
    differentiate: bool
    stored: list[torch.Tensor] | None


class Instance:
    """One instance of ``ModelNew``, for all trials of a case.

    Inputs have fixed addresses in the arena. Each trial's values replace the last one's in the same
    storage. So a candidate that caches answers by address, shape or version gives wrong results.

    Args:
        model: The instance.
        arena: The mapped arena.
        like: An earlier instance. The parameters of this one are written as often, so that their
            versions are the same.
    """

    def __init__(self, model: torch.nn.Module, arena: Arena, like: Instance | None = None):
        self.model = model
        self._writes = 0
        self._least_writes = 0 if like is None else like._writes - 1  # the trial adds one
        self._seed = 0
        self._called = model
        self._arena = arena
        self._inputs: dict[int, tuple[Region, torch.Tensor]] = {}
        self._frozen: dict[str, torch.nn.Parameter] = {}
        self._versions: dict[int, int] = {}  # of the inputs before the forward that is judged
        self._arguments: list[Any] = []
        self._outputs: list[torch.Tensor] | None = None
        self._passed_on: PassedOn | None = None  # keeps the memory of the last forward's arguments
        self._command: Forward | None = None
        self.changed_gradients: dict[str, str] = {}
        self._accumulates = False  # whether the candidate's backward works into ``.grad`` alone
        self._loop: _Loop | None = None
        self._graphs: dict[bool, torch.cuda.CUDAGraph] = {}  # keyed by whether the graph includes backward
        self._generators = generators(arena.device)

    def set_state(self, with_parameters: bool = True) -> None:
        """Copies the trial's buffers, and the parameters if asked, into the called model in place."""
        parameters = dict(self._called.named_parameters()) if with_parameters else {}
        self._writes += with_parameters
        self._set({**dict(self._called.named_buffers()), **parameters})

    @contextlib.contextmanager
    def given_state(self, call: int) -> Iterator[None]:
        """Gives the called model its state for one of several calls in a row.

        In the first two of more than two calls some elements of the inputs differ, in the first
        also some of the parameters. What the candidate raises then is no fault: the reference
        might, too. No later call gets the parameters again, since none may change them. Each call
        has another seed; the last one has the command's.
        """
        assert self._command is not None
        self._seed = self._command.order_seed ^ (self._command.calls - 1 - call)
        changes_inputs = self._command.calls > 2 and call < 2
        self.set_state(with_parameters=call == 0 or changes_inputs)
        if EVALUATION in self._command.ways and self._called is not self.model:
            with contextlib.suppress(Exception):  # runs hooks of its own, which a loaded state would run
                self._called.load_state_dict(self._called.state_dict())
        if not changes_inputs:
            yield
            return
        inputs = self._arguments if self._command.reorders else []
        changed = [*inputs, *(self._called.parameters() if call == 0 else ())]
        with contextlib.suppress(Exception), partly_changed(changed, self._command.order_seed + call):
            yield

    def _set(self, named: Mapping[str, torch.Tensor]) -> None:
        assert self._command is not None
        with torch.no_grad():
            for name, region in self._command.state:
                if name in named:
                    named[name].copy_(self._arena.tensor(region))

    def prepare(self, command: Forward) -> None:
        """Takes over a trial's inputs. No code of the candidate runs."""
        self._command, self._called, self._passed_on = command, self.model, None
        self._seed, self.changed_gradients = command.order_seed, {}
        self._arguments = [self._input(position, value, command) for position, value in enumerate(command.inputs)]
        for parameter in self._frozen.values():
            parameter.requires_grad_()
        parameters = {name: one for name, one in self.model.named_parameters() if one.requires_grad}
        self._frozen = {name: parameters[name] for name in command.frozen if name in parameters}
        for parameter in self._frozen.values():
            parameter.requires_grad_(False)

    @property
    def unfrozen(self) -> tuple[str, ...]:
        """The names of parameters that the judge has frozen, and that need a gradient nevertheless."""
        return tuple(name for name, parameter in self._frozen.items() if parameter.requires_grad)

    @property
    def written(self) -> tuple[int, ...]:
        """The positions of inputs to which torch has written in the last call, in autograd's view."""
        return tuple(position for position, version in self._versions.items() if self._version(position) != version)

    def _version(self, position: int) -> int:
        argument: torch.Tensor = self._arguments[position]
        return argument._version

    def given(self) -> Mapping[str, Sequence[torch.Tensor]]:
        """Returns what the candidate receives for a forward: inputs, and dense parameters that are not lazy."""
        own = [p for p in self.model.parameters() if type(p) is torch.nn.Parameter and p.layout == torch.strided]
        return {"input": [one for one in self._arguments if isinstance(one, torch.Tensor)], "parameter": own}

    def call(self) -> Any:
        """Calls the candidate with its current state. Nothing else runs."""
        assert self._command is not None
        # torch.manual_seed also formats a stack for each absent kind of device and takes 100 times as long.
        for generator in self._generators:
            generator.manual_seed(self._seed)
        is_copy = self._called is not self.model
        given = (at for at, value in enumerate(self._arguments) if isinstance(value, torch.Tensor))
        self._versions = {position: self._version(position) for position in given}
        if NON_LEAF in self._command.ways:
            with torch.set_grad_enabled(self._command.differentiate):
                self._passed_on = PassedOn(self._arguments)
            result = called(self._command, self._called, self._passed_on.arguments, is_copy=is_copy)
            self._passed_on.overwrite_unused()
        else:
            result = called(self._command, self._called, self._arguments, is_copy=is_copy)
        self._outputs = tensors_of(result)
        return result

    def enter(self) -> None:
        """Brings the model into the trial's mode, before it gets the trial's state.

        If the command says so, the next calls are those of a deep copy, if the model can be copied.
        The instance itself does not get the trial's state then.

        Raises:
            RuntimeError: A deep copy shares a parameter with the model.
        """
        assert self._command is not None
        while self._writes < self._least_writes:
            self.set_state()
        if RETURNED in self._command.ways:
            switch_and_return(self.model)
        if DEEP_COPY in self._command.ways:
            copied: torch.nn.Module | None = None
            with contextlib.suppress(Exception):  # torch does not promise that every module can be copied
                copied = copy.deepcopy(self.model)
            if copied is not None:
                check_apart(self.model, copied)
                self._called = copied
                if EVALUATION in self._command.ways:
                    copied.eval()

    def call_aside(
        self, model: torch.nn.Module, watched: Callable[[str], contextlib.AbstractContextManager[None]], calls: int
    ) -> None:
        """Calls a model on other values and drops the results.

        This catches a candidate whose result, or whatever its backward needs, lies in memory that
        calls or instances share. The values are of another draw: reordered ones would give the same
        answer where the order does not matter. Every second call finds them at the addresses of the
        inputs themselves, which get their own values back. Every third call runs under ``no_grad``:
        of this instance the first, as where a loop evaluates between a forward and its backward. The
        second call of this instance runs its backward, too.

        Args:
            model: This instance's model, or that of another instance.
            watched: Gives the context for a call, by its direction.
            calls: How often to call it.
        """
        assert self._command is not None
        unrecorded = 0 if model is self.model else 2
        for number in range(calls):
            is_in_place, is_recorded = number % 2 == 1, self._command.differentiate and number % 3 != unrecorded
            with replaced(self._arguments, list(map(self._value, self._command.others)), is_in_place) as inputs:
                with watched(FORWARD), torch.set_grad_enabled(is_recorded):
                    outputs = tensors_of(model(*inputs))
                if self._command.differentiate and model is self.model and number == 1:
                    with watched(BACKWARD):
                        self._differentiate_aside(inputs, outputs)

    def _value(self, value: Value) -> Any:
        return self._arena.tensor(value.region) if value.region else decode_plain(value.plain or "null")

    def _differentiate_aside(self, inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> None:
        """Runs the backward of a call aside, and drops the gradients."""
        tensors = [*(value for value in inputs if isinstance(value, torch.Tensor)), *self.model.parameters()]
        leaves = {str(number): one for number, one in enumerate(tensors) if one.requires_grad}
        self._differentiated(lambda: outputs, leaves, [torch.ones_like(one) for one in outputs])

    def kept(self, output: torch.Tensor) -> torch.Tensor:
        """Returns the part of an output that the judge asked for."""
        assert self._command is not None
        return kept(output, self._arguments, self._command.ways)

    def store_buffers(self, wanted: Sequence[tuple[str, Region]]) -> dict[str, str]:
        """Copies buffers into their regions.

        Returns:
            The reason for each buffer that could not be copied, by name.
        """
        named = dict(self._called.named_buffers())
        faults = {
            name: store(self._arena, region, named[name]) if name in named else "is missing" for name, region in wanted
        }
        return {name: fault for name, fault in faults.items() if fault}

    def differentiate_ahead(self, command: Backward) -> None:
        """Runs the candidate's backward of the last forward into ``.grad``; its graph serves another one."""
        assert self._outputs is not None
        leaves, cotangents = self._backward_arguments(command)
        try:
            accumulated(self._outputs, leaves, cotangents, self._accumulating(), retain_graph=True)
        except RuntimeError as error:
            # torch compiles a backward for one use or for several, by what its first call asked for.
            if "donated buffers" not in str(error):
                raise
            for leaf in (*leaves.values(), *self._accumulating().values()):
                leaf.grad = None
        # Torch gives two inputs views of one tensor behind x.view(-1) + y.view(-1); few inputs are leaves.
        for _, tensor in self._inputs.values():
            if tensor.grad is not None:
                tensor.grad = tensor.grad.clone()

    def gradients(self, command: Backward) -> dict[str, torch.Tensor | None]:
        """Runs the candidate's backward of the last forward.

        Each forward serves one such call; ``call_anew`` runs the next forward. If the command asks
        for two backwards, this is the second one, and the result has all gradients.

        Returns:
            The gradients by ``input_key`` or parameter name; None for a missing gradient.
        """
        assert self._outputs is not None
        leaves, cotangents = self._backward_arguments(command)
        if command.twice:
            return accumulated(self._taken_outputs(), leaves, cotangents, self._accumulating(), is_second=True)
        if command.gaps:
            cotangents = [one if one is None else with_gaps(one, command.gaps) for one in cotangents]
        return self._differentiated(self._taken_outputs, leaves, cotangents)

    def _taken_outputs(self) -> list[torch.Tensor]:
        """Returns the last forward's outputs for one backward; calls the candidate if that has run."""
        if self._outputs is None:
            self.call_anew()
        outputs, self._outputs = self._outputs, None
        return outputs or []

    def _accumulating(self) -> dict[str, torch.Tensor]:
        """Returns all tensors into whose ``.grad`` a backward may write, by ``input_key`` or parameter name."""
        inputs = {input_key(position): tensor for position, (_, tensor) in self._inputs.items()}
        return {**dict(self._called.named_parameters()), **inputs}

    def _differentiated(
        self,
        forward: Callable[[], Sequence[torch.Tensor]],
        leaves: dict[str, torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
    ) -> dict[str, torch.Tensor | None]:
        """Runs backward and returns the gradients of leaves.

        A reentrant checkpoint of torch works with ``backward()`` alone, and says so when it runs.
        From then on the gradients go into ``.grad``.

        Args:
            forward: Gives the outputs; another backward asks it again.
            leaves: The leaves by name.
            cotangents: One for each output.
        """
        if not self._accumulates:
            try:
                return differentiate(forward(), leaves, cotangents)
            except RuntimeError as error:
                if "incompatible with .grad()" not in str(error):
                    raise
            self._accumulates = True
        return accumulated(forward(), leaves, cotangents, self._accumulating())

    @property
    def output_regions(self) -> tuple[Region, ...]:
        """The regions for the outputs of the trial's forwards."""
        assert self._command is not None
        return self._command.outputs

    def call_anew(self) -> Any:
        """Calls the candidate again, so that a further backward has a forward of its own.

        A backward may free what its forward saved. As in training, each forward starts with the
        trial's buffers, and the parameters stay. They have a ``.grad``, as where gradients add up.
        """
        self._set(dict(self.model.named_buffers()))
        with having_gradients(self._accumulating()) as changed:
            result = self.call()
        self.changed_gradients = dict.fromkeys(changed, "forward changed its .grad, which belongs to the caller")
        return result

    def timed(self, command: TimeCalls, device: torch.device) -> tuple[float, float]:
        """Times one call, its results in row-major order; see ``clock.timed`` for the two numbers."""
        call = calling.row_major(self.step(command.backward))
        if command.is_replayed:
            call = self._captured(call, command.backward is not None).replay
        return clock.timed(call, device, command.head_start_us)

    def step(self, backward: Backward | None) -> Callable[[], Any]:
        """Returns the function to time: a forward under ``no_grad``, or one with its backward."""
        self._outputs = None  # free the last result, since the calls may need its memory
        if backward is None:
            return torch.no_grad()(lambda: self.model(*self._arguments))
        leaves, cotangents = self._backward_arguments(backward)

        def both() -> Any:
            return self._differentiated(lambda: tensors_of(self.model(*self._arguments)), leaves, cotangents)

        return both

    def _captured(self, call: Callable[[], Any], differentiates: bool) -> torch.cuda.CUDAGraph:
        """Returns the CUDA graph of a call. The first use captures it.

        The graph's results lie in the graph's own memory.
        """
        if differentiates not in self._graphs:
            # The warm-up calls run on the stream that captures the graph.
            aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(WARM_UP_CALLS):
                    call()
            torch.cuda.current_stream().wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=aside):
                call()
            self._graphs[differentiates] = graph
        return self._graphs[differentiates]

    def arm(self, command: Loop, arena: Arena) -> None:
        """Prepares everything of a loop except the candidate's own work.

        No code of the candidate runs.

        Args:
            command: The slots. The state is that of the last ``Forward``.
            arena: The arena that holds the slots' inputs and results.
        """
        self._outputs = None  # free the last result, since the calls may need its memory
        assert self._command is not None
        parameters = dict(self.model.named_parameters()) if command.leaves else {}
        plain = [decode_plain(value.plain) if value.plain is not None else None for value in self._command.inputs]
        calls = [
            _prepared(slot, command.leaves, parameters, plain, self._arena if slot.first else arena)
            for slot in command.slots
        ]
        stored = [torch.empty_like(target) for target in calls[0].targets] if command.store_only else None
        self._loop = _Loop(calls, bool(command.leaves), stored)

    def forget_outputs(self) -> None:
        """Drops the last results and what their backward would need, to free memory for others."""
        self._outputs = None

    def disarm(self) -> None:
        """Drops the loop, the last results and the memory that CUDA graphs hold."""
        self._loop = self._outputs = None
        self._graphs.clear()

    def loop(self) -> str:
        """Calls the candidate once for each slot, and copies results into their regions.

        Returns:
            What is wrong with a result; empty if nothing is.
        """
        loop = self._loop
        assert loop is not None
        for number, call in enumerate(loop.calls):
            for generator in self._generators:
                generator.manual_seed(call.seed)
            if fault := self._copied_call(call, loop):
                return f"call {number} {fault}"
        return ""

    def _copied_call(self, call: _Call, loop: _Loop) -> str:
        """Makes one call and copies its results, which end before the next call; returns what is wrong."""
        results = self._call(call, loop) if loop.stored is None else loop.stored
        if len(results) != len(call.targets):
            return f"returned {len(results)} tensors, expected {len(call.targets)}"
        for target, result in zip(call.targets, results, strict=True):
            if fault := "no gradient" if result is None else copied(target, result):
                return f"gave {fault}"
        return ""

    def _call(self, call: _Call, loop: _Loop) -> Sequence[torch.Tensor | None]:
        """Runs one call of a loop and returns its outputs, or the gradients of its leaves."""

        def forward() -> list[torch.Tensor]:
            with torch.set_grad_enabled(loop.differentiate):
                return tensors_of(self.model(*call.arguments))

        if not loop.differentiate:
            return forward()
        wanted = {name: leaf for name, leaf in call.leaves.items() if leaf.requires_grad}
        found = self._differentiated(forward, wanted, call.cotangents)
        return [found.get(name) for name in call.leaves]

    def _backward_arguments(self, command: Backward) -> tuple[dict[str, torch.Tensor], list[torch.Tensor | None]]:
        """Returns the leaves to differentiate, by name, and the cotangents; None for an output without one."""
        parameters = dict(self._called.named_parameters())
        leaves = {input_key(position): self._inputs[position][1] for position, _ in command.input_gradients}
        leaves.update((name, parameters[name]) for name, _ in command.state_gradients if name in parameters)
        wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
        tensors = self.cotangents(command)
        return wanted, [one if command.alone in (None, at) else None for at, one in enumerate(tensors)]

    def cotangents(self, command: Backward) -> list[torch.Tensor]:
        """Returns what a backward receives."""
        tensors = [self._arena.tensor(region) for region in command.cotangents]
        if not command.expanded:
            return tensors
        return [one[(0,) * one.dim()].expand(one.shape) if one.numel() else one for one in tensors]

    def _input(self, position: int, value: Value, command: Forward) -> Any:
        if value.region is None:
            return decode_plain(value.plain or "null")
        known = self._inputs.get(position)
        if known is None or known[0] != value.region:
            known = self._inputs[position] = value.region, self._arena.tensor(value.region)
        _, tensor = known
        needs_gradient = command.differentiate and input_key(position) not in command.frozen
        return tensor.requires_grad_(needs_gradient and is_differentiable(tensor))


def _prepared(
    slot: Slot, names: Sequence[str], parameters: Mapping[str, torch.Tensor], plain: Sequence[Any], arena: Arena
) -> _Call:
    """Returns a slot's arguments, leaves, cotangents and result regions as tensors."""
    arguments = list(plain)
    known = dict(parameters)
    for position, region in slot.inputs:
        arguments[position] = tensor = arena.tensor(region)
        if names and is_differentiable(tensor):
            known[input_key(position)] = tensor.requires_grad_()
    cotangents, targets = ([arena.tensor(region) for region in part] for part in (slot.cotangents, slot.results))
    return _Call(arguments, {name: known[name] for name in names}, cotangents, targets, slot.seed)
