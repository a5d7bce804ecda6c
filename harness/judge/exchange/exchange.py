"""Manages the judge's side of the arena: places, writes and copies tensors, checks for damage."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from harness.errors import ProblemError
from harness.judge.integrity import Integrity
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.records.record import Finding, Status
from harness.records.rules import INPUT_MUTATION
from harness.wire import cuda_memory
from harness.wire.arena import GUARDS, Arena, Layout, create_shared_file, map_file, order_of, region_bytes
from harness.wire.tensors import Region, StateTensor, Value
from harness.wire.values import UnsupportedValue, encode_plain


class TensorForm(NamedTuple):
    """Shape and dtype of a tensor that does not exist yet."""

    shape: Sequence[int]
    dtype: torch.dtype


class SharedArena:
    """An arena that the judge makes on a device, with a descriptor for a worker.

    Args:
        total_bytes: Size that is needed.
        device: The device of the arena.

    Attributes:
        descriptor: The descriptor by which a worker maps the arena.
        total_bytes: Size of the arena.

    Raises:
        DeviceMemoryError: The device has too little memory left.
    """

    def __init__(self, total_bytes: int, device: torch.device):
        self._device = device
        self._memory: cuda_memory.SharedDeviceMemory | None = None
        if device.type == "cuda":
            self._memory, self.descriptor = cuda_memory.create(device.index, total_bytes)
            self.total_bytes = self._memory.mapped_bytes
            self.arena = Arena(self._memory.tensor())
        else:
            self.total_bytes = total_bytes
            self.descriptor = create_shared_file(total_bytes)
            self.arena = Arena(map_file(self.descriptor, total_bytes))

    def settle(self) -> None:
        """Wait until all writes have reached the arena, before a worker reads it."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def close(self) -> None:
        """Close the descriptor and free device memory; a CPU mapping goes with the object."""
        os.close(self.descriptor)
        if self._memory is not None:
            del self.arena
            self._memory.close()


def out_of_bounds(place: str) -> CandidateStopped:
    """Return the verdict on a candidate that wrote outside its tensors."""
    message = f"a kernel wrote outside its tensors, {place}"
    remedy = "check the index of every store against the tensor's size"
    finding = Finding("out-of-bounds", kernel=None, line=None, accesses=(), remedy=remedy, message=message)
    return CandidateStopped(Status.UNSAFE, f"{message}; {remedy}", findings=(finding,))


def other_form(position: int) -> str:
    """Return the message about an input that has another form than in the first draw."""
    return (
        f"get_inputs() gave input {position} a different shape or dtype in a later call: draw the same shapes each "
        "time, as by padding, and pass lengths or a mask as an input"
    )


class Exchange:
    """Regions in one arena for everything that crosses between judge and worker in a case.

    Args:
        args: The constructor's arguments.
        inputs: A draw of the inputs. Later draws must have the same shapes and dtypes.
        state: The reference's state.
        outputs: Shapes and dtypes of the outputs.
        leaves: Differentiable leaves of the reference by name, whose gradients cross.
        input_names: Names of the differentiable inputs by position.
        device: The device of the arena.
        integrity: What happens if a rule is broken. None enforces all rules.

    Raises:
        ProblemError: An argument cannot cross.
        DeviceMemoryError: The device has too little memory left for the arena.
    """

    def __init__(
        self,
        args: Sequence[Any],
        inputs: Sequence[Any],
        state: Sequence[StateTensor],
        outputs: Sequence[TensorForm],
        leaves: dict[str, torch.Tensor],
        *,
        input_names: dict[int, str],
        device: torch.device,
        integrity: Integrity | None = None,
    ):
        self.integrity = Integrity() if integrity is None else integrity
        layout = Layout()
        self._named: dict[int, str] = {}
        try:
            self.args = tuple(self._value(layout, value, "a constructor argument") for value in args)
            self.inputs = tuple(
                self._value(layout, value, f"input {position}") for position, value in enumerate(inputs)
            )
        except UnsupportedValue as error:
            raise ProblemError(f"get_inputs() or get_init_inputs(): {error}") from None
        self.state = {
            tensor.name: self._name(layout.add(tensor.shape, getattr(torch, tensor.dtype)), tensor.name)
            for tensor in state
        }
        self.outputs = tuple(
            self._name(layout.add(tensor.shape, tensor.dtype), f"output {index}")
            for index, tensor in enumerate(outputs)
        )
        self.buffers = {
            tensor.name: self._name(
                layout.add(tensor.shape, getattr(torch, tensor.dtype)), f"buffer {tensor.name} after a forward"
            )
            for tensor in state
            if not tensor.is_parameter
        }
        # A cotangent replaces its output, which the judge has copied by then.
        self.cotangents = self.outputs
        self.gradients = {
            name: self._name(layout.add(leaf.shape, leaf.dtype), f"the gradient of {name}")
            for name, leaf in leaves.items()
        }
        self.input_names = input_names
        # Values for calls that nobody compares lie where gradients come later, if they have the same form.
        self.others = tuple(
            self._other(layout, position, place.region) if place.region is not None else place
            for position, place in enumerate(self.inputs)
        )
        self._guards = layout.guards()
        self._shared = SharedArena(layout.total_bytes, device)
        self._arena = self._shared.arena
        self.descriptor, self.total_bytes = self._shared.descriptor, self._shared.total_bytes
        for start, end in self._guards:
            self._arena.fill(start, end)
        for value, region in zip(args, self.args, strict=True):
            if region.region is not None:
                self._arena.tensor(region.region).copy_(value)

    @property
    def arena(self) -> Arena:
        """The judge's mapping of the arena."""
        return self._arena

    @property
    def tensor_inputs(self) -> tuple[tuple[int, Region], ...]:
        """Positions and regions of the inputs that are tensors."""
        return tuple((position, value.region) for position, value in enumerate(self.inputs) if value.region is not None)

    def close(self) -> None:
        """Close the descriptor and free device memory; a CPU mapping goes with the object."""
        del self._arena
        self._shared.close()

    def settle(self) -> None:
        """Wait until all writes have reached the arena, before the worker reads it."""
        self._shared.settle()

    def write_inputs(self, inputs: Sequence[Any]) -> tuple[Value, ...]:
        """Write a draw's inputs into their regions.

        Returns:
            The inputs as wire values.

        Raises:
            ProblemError: A tensor's shape or dtype differs from the first draw's.
        """
        return self._write_values(inputs, self.inputs)

    def write_others(self, inputs: Sequence[Any]) -> tuple[Value, ...]:
        """Write a further draw's inputs beside those of ``write_inputs``; they last until the next backward.

        Returns and raises as ``write_inputs``.
        """
        return self._write_values(inputs, self.others)

    def _write_values(self, inputs: Sequence[Any], places: Sequence[Value]) -> tuple[Value, ...]:
        for position, (value, place) in enumerate(zip(inputs, places, strict=True)):
            if place.region is None:
                continue
            target = self._arena.tensor(place.region)
            if not isinstance(value, torch.Tensor) or value.shape != target.shape or value.dtype != target.dtype:
                raise ProblemError(other_form(position))
            target.copy_(value.detach())
        return tuple(
            place if place.region is not None else Value(None, encode_plain(value))
            for value, place in zip(inputs, places, strict=True)
        )

    def write(self, region: Region, tensor: torch.Tensor) -> None:
        """Write a tensor into its region."""
        self._arena.tensor(region).copy_(tensor.detach())

    def write_first(self, region: Region, tensor: torch.Tensor, factor: float) -> None:
        """Write a tensor's first element, times a factor, into its region, and NaN everywhere else."""
        self.poison([region])
        if tensor.numel():
            first = (0,) * tensor.dim()
            self._arena.tensor(region)[first] = tensor[first] * factor

    def holds(self, region: Region, tensor: torch.Tensor, factor: float | None) -> bool:
        """Return whether a region still holds what ``write`` (with a factor ``write_first``) wrote."""
        held = self._arena.tensor(region)
        if factor is None or not tensor.numel():
            return same_bytes(held, tensor)
        first = (0,) * tensor.dim()
        return bool(held[first] == tensor[first] * factor)

    def surround(self, number: int) -> None:
        """Fill the guard bands with another pattern, so that reading beyond a tensor shows in some trial."""
        self._arena.guard = GUARDS[number % len(GUARDS)]
        for start, end in self._guards:
            self._arena.fill(start, end, self._arena.guard)

    def poison(self, regions: Sequence[Region]) -> None:
        """Fill regions with NaN, so that what the candidate leaves unwritten cannot pass."""
        for region in regions:
            self._arena.fill(region.offset, region.offset + region_bytes(region.shape, region.dtype))

    def take(self, region: Region) -> torch.Tensor:
        """Copy a region to private memory, once; the judge only ever compares the copy."""
        return self._arena.tensor(region).clone()

    def check_untouched(self, inputs: Sequence[Any], written: Collection[int] = ()) -> None:
        """Check guard bands and inputs.

        Args:
            inputs: The inputs that the candidate got.
            written: Positions of those to which it wrote, if only the values that were there: autograd then
                refuses the backward of what made them.

        Raises:
            CandidateStopped: The candidate wrote to a guard band (``UNSAFE``) or to an input
                (``CHEATED``, if that rule is enforced).
        """
        self.check_guards()
        if self.integrity.is_off(INPUT_MUTATION):
            return
        for position, (value, place) in enumerate(zip(inputs, self.inputs, strict=True)):
            if place.region is None:
                continue
            if position in written or not same_bytes(self._arena.tensor(place.region), value):
                rule = "which no solution may do, even if the reference does"
                message = f"the candidate changed its input {position} in place, {rule}"
                self.integrity.broken(INPUT_MUTATION, message)

    def check_guards(self) -> None:
        """Check the guard bands between the tensors.

        Raises:
            CandidateStopped: The candidate wrote to one (``UNSAFE``).
        """
        for start, end in self._guards:
            damaged = self._arena.first_damage(start, end)
            if damaged is not None:
                raise self._out_of_bounds(damaged)

    def _out_of_bounds(self, damaged: int) -> CandidateStopped:
        before = [offset for offset in self._named if offset <= damaged]
        after = [offset for offset in self._named if offset > damaged]
        place = f"after {self._named[max(before)]}" if before else f"before {self._named[min(after)]}"
        return out_of_bounds(place)

    def _value(self, layout: Layout, value: Any, name: str) -> Value:
        if isinstance(value, torch.Tensor):
            # A layout that no order describes (gaps, an expanded tensor) becomes row-major.
            return Value(self._name(layout.add(value.shape, value.dtype, order_of(value) or ()), name), None)
        return Value(None, encode_plain(value))

    def _other(self, layout: Layout, position: int, region: Region) -> Value:
        gradient = self.gradients.get(self.input_names.get(position, ""))
        if gradient is not None:
            return Value(replace(gradient, order=region.order), None)
        name = f"other values of input {position}"
        return Value(self._name(layout.add(region.shape, getattr(torch, region.dtype), region.order), name), None)

    def _name(self, region: Region, name: str) -> Region:
        self._named[region.offset] = name
        return region


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """View a tensor's elements as bytes that begin at a multiple of eight; copies if necessary."""
    if not tensor.is_contiguous() or tensor.storage_offset() * tensor.element_size() % 8:
        tensor = tensor.clone(memory_format=torch.contiguous_format)
    # A single element may be contiguous with any stride, which a view of another size would not take.
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def same_bytes(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Compare bit for bit, so that NaN equals itself and -0 differs from 0."""
    mine, theirs = (as_bytes(tensor.detach()) for tensor in (first, second))
    whole = mine.numel() // 8 * 8  # Comparing words means an eighth of the elements.
    words = torch.equal(mine[:whole].view(torch.int64), theirs[:whole].view(torch.int64))
    return words and torch.equal(mine[whole:], theirs[whole:])
