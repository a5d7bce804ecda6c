"""Computes the minimal work of a problem: bytes moved and flops of products, from its reference.

The reference runs on torch's meta device, which allocates and computes nothing.

*Bytes.* A forward reads inputs, parameters and buffers, and writes outputs. A forward with backward
also reads the cotangents and writes the gradients. It reads once more those inputs and parameters
that eager's backward takes from what its forward saved. Intermediates do not count: a kernel can
keep them on the chip or compute them again. Each tensor counts once, by the memory that it lies in.

*Flops.* The count has the multiplications and additions of matrix products, convolutions and
attention, by the formulas of torch's own counter (``torch.utils.flop_counter``). All other
operations are few and do not count.

For a dense operator on tensors that exceed the caches, this is a lower bound. An honest call may
stay below it in these cases:

- The reference computes products on which the result does not depend. One example is a gradient
  behind a minimum, which is zero but for one element of each row. Another is the padding of a
  convolution, which the counter counts.
- Another algorithm has the same result (Winograd, Strassen).
- The call reads an input or parameter in part (an embedding) or not at all.
- A backward needs less than eager saves (the sign, in place of the value).
- A cache keeps tensors from one kernel to the next, or writing a tensor ends after the call does.

So a claim below the floor gets a flag, and no refusal.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import flop_registry

from harness.aten.dispatching import DispatchMode
from harness.judge.inputs.draws import seeded
from harness.project import problems
from harness.project.problems import Problem, ProblemModule
from harness.system.files import read_source, write_whole
from harness.timing.floor import MinimalWork
from harness.wire.structure import tensors_of
from harness.wire.variations import is_differentiable


class _Call(NamedTuple):
    """A call of the reference on the meta device.

    Attributes:
        model: The reference.
        inputs: The inputs that are tensors, as the problem made them.
        kept: Pairs of the copy that the call got and the input, without those that the call changed
            in place.
        outputs: The outputs that are tensors.
    """

    model: torch.nn.Module
    inputs: list[torch.Tensor]
    kept: list[tuple[torch.Tensor, torch.Tensor]]
    outputs: list[torch.Tensor]


class FlopCounter(DispatchMode):  # type: ignore[no-untyped-call]
    """Counts the flops of a block by the formulas of torch's own counter.

    That counter itself (``FlopCounterMode``) imports torch's compiler, which takes seconds.

    Attributes:
        flops: The flops counted so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, or its decomposition, and count it."""
        kwargs = kwargs or {}
        formula = flop_registry.get(func._overloadpacket)
        if formula is None:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        if formula is not None:
            self.flops += int(formula(*args, **kwargs, out_val=result))
        return result


def work_of(problem: Problem, constants: dict[str, Any]) -> MinimalWork | None:
    """Count the minimal work of a case; None where the reference does not run on the meta device.

    If none of a problem's outputs is differentiable, the result has no ``forward_backward``.

    Raises:
        ProblemError: The problem's body raised.
    """
    module = problems.load(problem, constants)
    try:
        with torch.device("meta"), seeded(0):
            found = {"forward": _forward(module), "forward_backward": _forward_backward(module)}
    # A problem may do what meta tensors cannot; then its work is unknown, which is no error.
    except Exception:
        return None
    known = {direction: counted for direction, counted in found.items() if counted is not None}
    return MinimalWork(
        {direction: moved for direction, (moved, _) in known.items()},
        {direction: flops for direction, (_, flops) in known.items()},
    )


def kept_work(folder: Path, problem: Problem, constants: dict[str, Any]) -> MinimalWork | None:
    """Return ``work_of``, cached in a folder across programs: meta tensors import for seconds.

    Args:
        folder: The cache folder, made where missing. Errors in reading or writing there do no harm.
        problem: The problem.
        constants: The case's constants.

    Raises:
        ProblemError: The problem's body raised.
    """
    known = json.dumps([problem.digest, repr(sorted(constants.items())), torch.__version__, _own_digest()])
    path = folder / f"{hashlib.sha256(known.encode()).hexdigest()}.json"
    try:
        kept = json.loads(read_source(path))
        if kept is None or _is_work(kept):
            return None if kept is None else MinimalWork(kept["bytes"], kept["flops"])
    except (OSError, ValueError, RecursionError):
        pass
    work = work_of(problem, constants)
    with contextlib.suppress(OSError):  # The next program counts again.
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(None if work is None else asdict(work)).encode())
    return work


def _own_digest() -> str:
    """Return the start of this file's sha256, so that a changed way of counting counts anew."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]


def _is_work(kept: Any) -> bool:
    """Return whether a file holds the counts of a ``MinimalWork``."""
    if not isinstance(kept, dict) or set(kept) != {"bytes", "flops"}:
        return False
    return all(
        isinstance(part, dict)
        and set(part) in ({"forward"}, {"forward", "forward_backward"})
        and all(type(count) is int and count >= 0 for count in part.values())
        for part in kept.values()
    ) and set(kept["bytes"]) == set(kept["flops"])


def _forward(module: ProblemModule) -> tuple[int, int]:
    """Count the bytes and flops of a forward."""
    model, arguments = _made(module)
    with FlopCounter() as counter, torch.no_grad():
        call = _called(model, arguments, differentiate=False)
    return _moved(call), counter.flops


def _forward_backward(module: ProblemModule) -> tuple[int, int] | None:
    """Count the bytes and flops of forward with backward; None where nothing is differentiable."""
    model, arguments = _made(module)
    taken: list[torch.Tensor] = []

    def take(saved: torch.Tensor) -> torch.Tensor:
        taken.append(saved)
        return saved

    # The hook detaches: an operator that saves its own output would otherwise keep itself alive.
    with FlopCounter() as counter, torch.enable_grad(), saved_tensors_hooks(torch.Tensor.detach, take):
        call = _called(model, arguments, differentiate=True)
        leaves = [leaf for leaf in (*call.inputs, *model.parameters()) if leaf.requires_grad]
        outputs = [output for output in call.outputs if output.requires_grad]
        if not leaves or not outputs:
            return None
        cotangents = [torch.empty_like(output) for output in outputs]
        gradients = torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True)
    written = [leaf for leaf, gradient in zip(leaves, gradients, strict=True) if gradient is not None]
    if not written:
        return None
    sources = {_place(given): tensor for given, tensor in call.kept}
    sources |= {_place(parameter): parameter for parameter in model.parameters()}
    again = [sources[place] for place in map(_place, taken) if place in sources]
    return _moved(call) + _dense(outputs) + _dense(written) + _occupied(again), counter.flops


def _made(module: ProblemModule) -> tuple[torch.nn.Module, list[Any]]:
    """Make the reference and the arguments of a call."""
    return module.model(*module.get_init_inputs()), list(module.get_inputs())


def _called(model: torch.nn.Module, arguments: list[Any], differentiate: bool) -> _Call:
    """Call the reference on copies: it may work in place, which autograd forbids on leaves."""
    tensors = {
        position: value.detach().requires_grad_(differentiate and is_differentiable(value))
        for position, value in enumerate(arguments)
        if isinstance(value, torch.Tensor)
    }
    given = {position: tensor.clone() for position, tensor in tensors.items()}
    versions = {position: tensor._version for position, tensor in given.items()}
    result = model(*(given.get(position, value) for position, value in enumerate(arguments)))
    kept = [
        (given[position], tensors[position]) for position in given if given[position]._version == versions[position]
    ]
    return _Call(model, list(tensors.values()), kept, tensors_of(result))


def _moved(call: _Call) -> int:
    """Count the bytes that a forward reads and writes; it does not write outputs that are views."""
    state = [*call.model.parameters(), *call.model.buffers()]
    there = {_place(tensor) for tensor in (*(given for given, _ in call.kept), *state)}
    return _occupied([*call.inputs, *state]) + _occupied(one for one in call.outputs if _place(one) not in there)


def _place(tensor: torch.Tensor) -> int:
    """Identify the memory of a tensor. The name is valid while some tensor holds the memory."""
    return int(tensor.untyped_storage()._cdata)


def _dense(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _occupied(tensors: Iterable[torch.Tensor]) -> int:
    """Count the bytes of tensors: equal views once, and all views of one memory at most its size."""
    views: dict[int, dict[tuple[object, ...], torch.Tensor]] = {}
    for tensor in tensors:
        form = tensor.storage_offset(), tensor.shape, tensor.stride()
        views.setdefault(_place(tensor), {})[form] = tensor
    return sum(
        min(_dense(of_one.values()), next(iter(of_one.values())).untyped_storage().nbytes())
        for of_one in views.values()
    )
