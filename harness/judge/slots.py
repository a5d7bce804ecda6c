"""Inputs and results of many calls in a row, in an arena of their own: the judge's side of a ``Loop``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from harness.judge.exchange import SharedArena, input_changed, out_of_bounds, write_values
from harness.judge.handle import CandidateStopped
from harness.records import Status
from harness.wire.arena import Layout, dtype_named, region_bytes
from harness.wire.messages import Region, Slot, Value

#: Elements of a tensor that are looked at where looking at all would take too long.
SAMPLED_ELEMENTS = 1 << 14


class Slots:
    """Places for a number of calls.

    Args:
        inputs: The arguments of a call, as the first arena has them.
        results: The regions of its results there.
        count: For how many calls.
        device: Where they are to lie.

    Attributes:
        places: Every call's arguments and results; seeds are for the taker to set.

    Raises:
        DeviceMemoryError: The device has not enough memory left.
    """

    def __init__(self, inputs: Sequence[Value], results: Sequence[Region], count: int, device: torch.device):
        layout = Layout()
        self.places = [
            Slot(
                tuple(value if value.region is None else Value(_like(layout, value.region), None) for value in inputs),
                tuple(_like(layout, region) for region in results),
                0,
            )
            for _ in range(count)
        ]
        self._guards = layout.guards()
        self._shared = SharedArena(layout.total_bytes, device)
        self.descriptor, self.total_bytes = self._shared.descriptor, self._shared.total_bytes
        for start, end in self._guards:
            self._shared.arena.fill(start, end)

    def close(self) -> None:
        """Give the memory back."""
        self._shared.close()

    def settle(self) -> None:
        """Wait until everything written lies in the arena."""
        self._shared.settle()

    def write(self, number: int, inputs: Sequence[Any]) -> None:
        """Write a call's tensors; its plain values stay those of the first arena.

        Raises:
            ProblemError: A tensor's shape or dtype differs from the first draw's.
        """
        write_values(self._shared.arena, self.places[number].inputs, inputs)

    def poison(self, count: int) -> None:
        """Fill the results of the first calls with NaN, so that what is left unwritten cannot pass."""
        for place in self.places[:count]:
            for region in place.results:
                self._shared.arena.fill(region.offset, region.offset + region_bytes(region.shape, region.dtype))

    def result_places(self, seed: int) -> list[torch.Tensor | None]:
        """For each result of a call, which of its elements are looked at; None for all of a small one."""
        return [_places(self._shared.arena.tensor(region), seed) for region in self.places[0].results]

    def sampled_results(self, number: int, places: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
        """Private copies of some elements of a call's results; on a GPU they are only queued."""
        regions = self.places[number].results
        return [
            _taken(self._shared.arena.tensor(region), chosen) for region, chosen in zip(regions, places, strict=True)
        ]

    def results(
        self, number: int, places: Sequence[torch.Tensor | None], before: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Private copies of a call's results, which must not have changed since some of their elements were looked at.

        Args:
            number: The call.
            places: Which elements those were.
            before: What they were.

        Raises:
            CandidateStopped: They have changed (``CHEATED``).
        """
        results = [self._shared.arena.tensor(region).clone() for region in self.places[number].results]
        now = [_taken(result, chosen) for result, chosen in zip(results, places, strict=True)]
        if not all(map(same_bits, now, before)):
            message = "a result was written after the answer that its call was done"
            raise CandidateStopped(Status.CHEATED, message, rule="late_write")
        return results

    def sampled_inputs(self, number: int, seed: int) -> dict[int, torch.Tensor]:
        """Some elements of a call's inputs, by position; which ones follows from the seed."""
        tensors = {
            position: self._shared.arena.tensor(value.region)
            for position, value in enumerate(self.places[number].inputs)
            if value.region is not None
        }
        return {position: _taken(tensor, _places(tensor, seed)) for position, tensor in tensors.items()}

    def check_inputs(self, number: int, seed: int, before: dict[int, torch.Tensor]) -> None:
        """Verify that a call's inputs are what ``sampled_inputs`` saw under the same seed.

        Raises:
            CandidateStopped: They are not (``CHEATED``).
        """
        for position, now in self.sampled_inputs(number, seed).items():
            if not same_bits(now, before[position]):
                raise input_changed(position)

    def check_guards(self) -> None:
        """Verify the bands between the tensors.

        Raises:
            CandidateStopped: One was written (``UNSAFE``).
        """
        for start, end in self._guards:
            if self._shared.arena.first_damage(start, end) is not None:
                raise out_of_bounds("in timed calls")


def bytes_of_call(inputs: Sequence[Value], results: Sequence[Region]) -> tuple[int, int]:
    """Bytes of one call's inputs, and of its results."""
    regions = [value.region for value in inputs if value.region is not None]
    return tuple(sum(region_bytes(one.shape, one.dtype) for one in part) for part in (regions, results))  # type: ignore[return-value]


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two dense tensors of one form hold the same bits: NaN equals itself, -0 differs from 0."""
    return torch.equal(first.view(torch.uint8), second.view(torch.uint8))


def _places(tensor: torch.Tensor, seed: int) -> torch.Tensor | None:
    """Indices into a flattened tensor that follow from a seed; None for all of a small one."""
    if tensor.numel() <= SAMPLED_ELEMENTS:
        return None
    generator = torch.Generator(tensor.device).manual_seed(seed)
    return torch.randint(tensor.numel(), (SAMPLED_ELEMENTS,), generator=generator, device=tensor.device)


def _taken(tensor: torch.Tensor, places: torch.Tensor | None) -> torch.Tensor:
    flat = tensor.reshape(-1)
    return flat.clone() if places is None else flat[places]


def _like(layout: Layout, region: Region) -> Region:
    return layout.add(region.shape, dtype_named(region.dtype))
