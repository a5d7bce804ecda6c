"""Calls an instance and its backward in the ways in which training loops and servers do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.dlpack import from_dlpack

from harness.wire.arena import order_of
from harness.wire.commands import EVALUATION, INFERENCE, LARGER_BATCH, Forward
from harness.wire.state import modes_kept
from harness.wire.structure import tensors_of
from harness.wire.variations import (
    MOST_COPIED,
    can_reorder,
    is_differentiable,
    longest_axis,
    with_operators,
)
from harness.worker.limits import release_reserve

_SCRIPTED_IN_INFERENCE = ("TorchScript", "Inference tensors cannot be saved for backward")
#: The most elements of a tensor that ``partly_changed`` moves.
MOST_EXCHANGED = 1 << 16


def called(command: Forward, model: torch.nn.Module, arguments: list[Any], *, is_copy: bool) -> Any:
    """Calls a model and returns its result.

    Args:
        command: The command, which names the ways of the call.
        model: The model to call.
        arguments: The arguments in the arena.
        is_copy: Whether no later call uses the model. Only then may the call run in inference mode,
            since tensors that it makes and the model keeps are of no use in later calls.
    """
    try:
        with _called_as(command, model, arguments, is_copy) as given:
            try:
                return model(*given)
            except MemoryError:
                release_reserve()
                raise
    except RuntimeError as error:
        # TorchScript records what parameters go through in inference mode, too, and then refuses the
        # tensors that it made there. Such code works under no_grad.
        if INFERENCE not in command.ways or not all(words in str(error) for words in _SCRIPTED_IN_INFERENCE):
            raise
    ways = tuple(way for way in command.ways if way != INFERENCE)
    return called(replace(command, ways=ways), model, arguments, is_copy=is_copy)


class _Copied(torch.autograd.Function):
    """An operator that copies a tensor into other memory, of which its result is the only tensor."""

    @staticmethod
    def forward(_: Any, value: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        return from_dlpack(memory.copy_(value))

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class PassedOn:
    """The arguments of a call as results of other operators, which nothing keeps but the call itself.

    Args:
        arguments: The arguments in the arena. Those that need no gradient stay as they are.

    Attributes:
        arguments: The arguments for the call; ``overwrite_unused`` takes them away.
    """

    def __init__(self, arguments: Sequence[Any]):
        self.arguments = list(arguments)
        self._memory: list[tuple[torch.Tensor, StorageWeakRef]] = []
        for position, value in enumerate(arguments):
            if not isinstance(value, torch.Tensor) or not value.requires_grad:
                continue
            if value.numel() > MOST_COPIED:
                self.arguments[position] = value.view_as(value)
                continue
            memory = torch.empty_like(value, requires_grad=False)
            self.arguments[position] = copied = _Copied.apply(value, memory)  # type: ignore[no-untyped-call]
            self._memory.append((memory, StorageWeakRef(copied.untyped_storage())))  # type: ignore[no-untyped-call]

    def overwrite_unused(self) -> None:
        """Fills the memory of each argument that nobody holds any more with NaN.

        Torch would give that memory to others. A backward that kept an address alone reads it.
        """
        self.arguments.clear()
        for memory, tensor in self._memory:
            if tensor.expired():  # type: ignore[no-untyped-call]
                memory.fill_(float("nan"))


@contextlib.contextmanager
def _called_as(command: Forward, model: torch.nn.Module, arguments: list[Any], is_copy: bool) -> Iterator[list[Any]]:
    """Sets up the modes of a call and yields its arguments."""
    ways = command.ways
    with (
        modes_kept(model),
        torch.inference_mode() if INFERENCE in ways and is_copy else torch.set_grad_enabled(command.differentiate),
    ):
        if LARGER_BATCH in ways:
            batch = _batch(arguments)
            arguments = [torch.cat([one.flip(0), one]) if _has(one, batch) else one for one in arguments]
        if EVALUATION in ways and not is_copy:  # a copy is in that mode since it was made
            model.eval()
        yield arguments


def check_apart(model: torch.nn.Module, copied: torch.nn.Module) -> None:
    """Checks that a deep copy has parameters of its own.

    Raises:
        RuntimeError: It shares one with the model.
    """
    own = dict(model.named_parameters())
    for name, parameter in copied.named_parameters():
        if name in own and parameter.numel() and parameter.data_ptr() == own[name].data_ptr():
            raise RuntimeError(f"copy.deepcopy(model) shares the parameter {name} with the model")


@contextlib.contextmanager
def having_gradients(leaves: Mapping[str, torch.Tensor]) -> Iterator[list[str]]:
    """Gives each of these tensors a ``.grad`` of ones for the length of a block.

    Yields:
        A list that has, after the block, the names of those whose ``.grad`` was exchanged; if any
        of them was written to, all names.
    """
    leaves = {name: one for name, one in leaves.items() if one.requires_grad and one.is_leaf}
    ones = {one.dtype: torch.ones((), dtype=one.dtype, device=one.device) for one in leaves.values()}
    given = {name: ones[one.dtype].expand(one.shape) for name, one in leaves.items()}
    changed: list[str] = []
    for name, leaf in leaves.items():
        leaf.grad = given[name]
    try:
        yield changed
    finally:
        changed += [name for name, leaf in leaves.items() if leaf.grad is not given[name]]
        if not changed and not all(one.item() == 1 for one in ones.values()):  # an operator would count as work
            changed += leaves
        for leaf in leaves.values():
            leaf.grad = None


def kept(output: torch.Tensor, arguments: Sequence[Any], ways: Sequence[str]) -> torch.Tensor:
    """Returns the part of an output that belongs to the arguments: of a larger batch, the second half."""
    batch = _batch(arguments)
    return output[batch:] if LARGER_BATCH in ways and _has(output, 2 * batch) else output


def differentiate(
    outputs: Sequence[torch.Tensor],
    leaves: dict[str, torch.Tensor],
    cotangents: Sequence[torch.Tensor | None],
) -> dict[str, torch.Tensor | None]:
    """Returns the gradients of leaves by name; None for one without a gradient.

    An output whose cotangent is None is left out, as by a loss that does not use it.
    """
    pairs = _differentiable(outputs, cotangents)
    if not leaves or not pairs:
        return {}
    results = torch.autograd.grad(
        [output for output, _ in pairs],
        list(leaves.values()),
        [cotangent for _, cotangent in pairs],
        allow_unused=True,
    )
    return dict(zip(leaves, results, strict=True))


def row_major(call: Callable[[], Any]) -> Callable[[], None]:
    """Returns a call that also brings its results into row-major order.

    The judge receives results in that order, and its own clock sees the time that the change takes.
    """

    def both() -> None:
        for tensor in tensors_of(call()):
            tensor.contiguous()

    return both


def accumulated(
    outputs: Sequence[torch.Tensor],
    leaves: dict[str, torch.Tensor],
    cotangents: Sequence[torch.Tensor | None],
    others: Mapping[str, torch.Tensor],
    retain_graph: bool = False,
    is_second: bool = False,
) -> dict[str, torch.Tensor | None]:
    """Runs backward into all ``.grad``, as ``loss.backward()`` does, and returns those of the leaves and others.

    Args:
        outputs: The outputs of a forward.
        leaves: The leaves in question, by name.
        cotangents: One for each output.
        others: Further tensors that may get a ``.grad``, by name.
        retain_graph: Whether another backward of the same forward follows. The gradients stay in
            ``.grad`` then, as torch put them there, if they can be doubled. Else the function clears
            all afterwards.
        is_second: Whether ``.grad`` holds the gradients of an equal backward before. Backward adds to
            them, and the result has half of each sum. Neither step rounds.
    """
    pairs, leaves = _differentiable(outputs, cotangents), {**others, **leaves}
    doubled = {name for name, one in leaves.items() if one.grad is not None} if is_second else set()
    for name, leaf in leaves.items():
        if name not in doubled:
            leaf.grad = None
    if pairs:
        # Torch may make a cotangent, or a view of it, a .grad, to which the second backward adds.
        is_double = retain_graph or is_second
        own = [given.clone() if is_double and given.numel() <= MOST_COPIED else given for _, given in pairs]
        torch.autograd.backward([output for output, _ in pairs], own, retain_graph=retain_graph)
    found = {name: leaf.grad for name, leaf in leaves.items()}
    for name, leaf in leaves.items():
        gradient = leaf.grad
        if not retain_graph or gradient is None or not _can_double(gradient):
            leaf.grad = None
        if gradient is not None and name in doubled:
            found[name] = gradient * 0.5
    return found


def unasked(gradients: Mapping[str, torch.Tensor | None], wanted: Iterable[str]) -> tuple[str, ...]:
    """Returns the names of gradients that nobody asked for, and that are not all zero."""
    others = ((name, gradient) for name, gradient in gradients.items() if name not in set(wanted))
    return tuple(name for name, gradient in others if gradient is not None and _is_set(gradient))


def _is_set(gradient: torch.Tensor) -> bool:
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return bool(values.ne(0).any())


@contextlib.contextmanager
def replaced(arguments: Sequence[Any], others: Sequence[Any], is_in_place: bool) -> Iterator[list[Any]]:
    """Yields arguments with other values, as leaves that need gradients where the arguments do.

    Args:
        arguments: The arguments. They keep their values, or get them back after the block.
        others: The other values, as many.
        is_in_place: Whether the values lie where the arguments lie, without a new version. Otherwise
            they are copies.
    """
    pairs = [pair for pair in zip(arguments, others, strict=True) if isinstance(pair[0], torch.Tensor)]
    if not is_in_place:
        copies = [one.clone().requires_grad_(tensor.requires_grad) for tensor, one in pairs]
        yield [copies.pop(0) if isinstance(one, torch.Tensor) else one for one in others]
        return
    before = [tensor.detach().clone() for tensor, _ in pairs]
    try:
        for tensor, other in pairs:
            tensor.data.copy_(other)
        yield [old if isinstance(old, torch.Tensor) else new for old, new in zip(arguments, others, strict=True)]
    finally:
        for (tensor, _), value in zip(pairs, before, strict=True):
            tensor.data.copy_(value)


@contextlib.contextmanager
def partly_changed(tensors: Iterable[Any], seed: int) -> Iterator[None]:
    """Exchanges some elements of each tensor among themselves for the length of a block.

    About an eighth of a tensor's elements change places, ``MOST_EXCHANGED`` at most. So those that a
    candidate compares with its last call's may well be the same, although others differ. Integers
    and truth values exchange slices, as in ``reversed_input``.

    Args:
        tensors: The tensors to change in place, without a new version.
        seed: Seed of the choice.
    """
    generator = torch.Generator().manual_seed(seed)
    before: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    for tensor in tensors:
        if not can_reorder(tensor) or order_of(tensor) is None:
            continue
        rows = _rows(tensor.data)
        count = min(max(2, len(rows) // 8), MOST_EXCHANGED * len(rows) // rows.numel())
        drawn = torch.randint(len(rows), (count,), generator=generator)
        places = torch.unique(drawn).to(rows.device)
        before.append((rows, places, rows[places]))
        rows[places] = rows[places.flip(0)]
    try:
        yield
    finally:
        for rows, places, values in before:
            rows[places] = values


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a dense tensor's elements as they lie in memory, or its longest slices if it is not floating."""
    if not is_differentiable(tensor):
        return with_operators(tensor).movedim(longest_axis(tensor), 0)
    return tensor.as_strided((tensor.numel(),), (1,))


def _differentiable(
    outputs: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor | None]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns the outputs that have a gradient, with their cotangents, except those without a cotangent."""
    pairs = zip(outputs, cotangents, strict=True)
    return [(output, given) for output, given in pairs if output.requires_grad and given is not None]


def _can_double(gradient: torch.Tensor) -> bool:
    """Returns whether a sum of two such gradients stays in their dtype's range, and memory can hold one more."""
    return gradient.dtype != torch.float16 and gradient.numel() <= MOST_COPIED


def _batch(arguments: Sequence[Any]) -> int:
    """Returns the number of samples, from the first tensor with more than one; 0 if there is no batch."""
    sizes = (len(value) for value in arguments if isinstance(value, torch.Tensor) and value.dim())
    return next((size for size in sizes if size > 1), 0)


def _has(value: Any, samples: int) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and 0 < samples == len(value)
