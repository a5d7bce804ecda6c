"""Places inputs, cotangents and results of many calls in a row: the judge's side of a ``Loop``.

The first call uses the regions of the trials. All others lie in an arena of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from harness.errors import ProblemError
from harness.judge.exchange.exchange import Exchange, SharedArena, other_form, out_of_bounds
from harness.records.rules import INPUT_MUTATION, LATE_WRITE
from harness.wire.arena import Arena, Layout, dtype_named, region_bytes
from harness.wire.commands import Slot
from harness.wire.tensors import Region

#: Number of elements to sample where checking a whole tensor would take too long.
SAMPLED_ELEMENTS = 1 << 14


class Slots:
    """Places for the tensors of a number of calls.

    Args:
        exchange: The arena of the trials.
        results: The regions of a call's results there.
        cotangents: The regions of a call's cotangents there; empty if a call is a forward.
        count: The number of calls, at least two.
        device: The device of the places.

    Attributes:
        places: Every call's arguments, cotangents and results. The caller sets the seeds.

    Raises:
        DeviceMemoryError: The device has too little memory left.
    """

    def __init__(
        self,
        exchange: Exchange,
        results: Sequence[Region],
        cotangents: Sequence[Region],
        count: int,
        device: torch.device,
    ):
        first = Slot(True, exchange.tensor_inputs, tuple(cotangents), tuple(results), 0)
        layout = Layout()
        self.places = [
            first,
            *(
                Slot(
                    False,
                    tuple((position, _like(layout, region)) for position, region in first.inputs),
                    tuple(_like(layout, region) for region in cotangents),
                    tuple(_like(layout, region) for region in results),
                    0,
                )
                for _ in range(count - 1)
            ),
        ]
        self._exchange = exchange
        self._guards = layout.guards()
        self._shared = SharedArena(layout.total_bytes, device)
        self.descriptor, self.total_bytes = self._shared.descriptor, self._shared.total_bytes
        for start, end in self._guards:
            self._shared.arena.fill(start, end)

    def close(self) -> None:
        """Free the memory."""
        self._shared.close()

    def settle(self) -> None:
        """Wait until all writes have finished."""
        self._shared.settle()

    def write(self, number: int, inputs: Sequence[Any], cotangents: Sequence[torch.Tensor]) -> None:
        """Write a call's tensors.

        Raises:
            ProblemError: An input's shape or dtype differs from the first draw's.
        """
        place, arena = self.places[number], self._arena(number)
        for position, region in place.inputs:
            value, target = inputs[position], arena.tensor(region)
            if not isinstance(value, torch.Tensor) or value.shape != target.shape or value.dtype != target.dtype:
                raise ProblemError(other_form(position))
            target.copy_(value.detach())
        for region, cotangent in zip(place.cotangents, cotangents, strict=True):
            arena.tensor(region).copy_(cotangent)

    def poison(self, count: int) -> None:
        """Fill the results of the first calls with NaN, so that unwritten ones cannot pass."""
        for number, place in enumerate(self.places[:count]):
            for region in place.results:
                end = region.offset + region_bytes(region.shape, region.dtype)
                self._arena(number).fill(region.offset, end)

    def result_places(self, seed: int) -> list[torch.Tensor | None]:
        """Choose which elements of each result to sample; None for all of a small one."""
        return [_places(self._arena(0).tensor(region), seed) for region in self.places[0].results]

    def sampled_results(self, number: int, places: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
        """Copy sampled elements of a call's results; on a GPU the copies are only queued."""
        arena = self._arena(number)
        return [
            _taken(arena.tensor(region), chosen)
            for region, chosen in zip(self.places[number].results, places, strict=True)
        ]

    def results(
        self, number: int, places: Sequence[torch.Tensor | None], before: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Copy a call's results, and check that they have not changed since they were sampled.

        Args:
            number: The call.
            places: Places of the sampled elements.
            before: Values of the sampled elements.

        Raises:
            CandidateStopped: They have changed (``CHEATED``).
        """
        results = [self._arena(number).tensor(region).clone() for region in self.places[number].results]
        now = [_taken(result, chosen) for result, chosen in zip(results, places, strict=True)]
        if not all(map(same_bits, now, before)):
            message = "a result was written after the worker reported that its call was done"
            self._exchange.integrity.broken(LATE_WRITE, message)
        return results

    def sampled_given(self, number: int, seed: int) -> list[torch.Tensor]:
        """Sample elements of a call's inputs and cotangents, at places that follow from the seed."""
        return [_taken(tensor, _places(tensor, seed)) for _, tensor in self._given(number)]

    def check_given(self, number: int, seed: int, before: Sequence[torch.Tensor]) -> None:
        """Check that a call's inputs are what ``sampled_given`` saw under the same seed.

        Raises:
            CandidateStopped: They are not (``CHEATED``).
        """
        names = [name for name, _ in self._given(number)]
        for name, now, then in zip(names, self.sampled_given(number, seed), before, strict=True):
            if not same_bits(now, then):
                message = f"the candidate changed {name} of a timed call in place, which no solution may do"
                self._exchange.integrity.broken(INPUT_MUTATION, message)

    def check_guards(self) -> None:
        """Check the guard bands between the tensors.

        Raises:
            CandidateStopped: The candidate wrote to one (``UNSAFE``).
        """
        self._exchange.check_guards()
        for start, end in self._guards:
            if self._shared.arena.first_damage(start, end) is not None:
                raise out_of_bounds("in timed calls")

    def _arena(self, number: int) -> Arena:
        return self._exchange.arena if number == 0 else self._shared.arena

    def _given(self, number: int) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield a call's inputs and cotangents, with words for them."""
        place, arena = self.places[number], self._arena(number)
        for position, region in place.inputs:
            yield f"input {position}", arena.tensor(region)
        for index, region in enumerate(place.cotangents):
            yield f"the cotangent of output {index}", arena.tensor(region)


def bytes_of_call(regions: Sequence[Region]) -> int:
    """Return the bytes of a call's tensors."""
    return sum(region_bytes(one.shape, one.dtype) for one in regions)


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Compare two dense tensors of one form bit for bit: NaN equals itself, -0 differs from 0."""
    return torch.equal(first.view(torch.uint8), second.view(torch.uint8))


def _places(tensor: torch.Tensor, seed: int) -> torch.Tensor | None:
    """Choose indices into a flattened tensor by a seed; None for all of a small one."""
    if tensor.numel() <= SAMPLED_ELEMENTS:
        return None
    generator = torch.Generator(tensor.device).manual_seed(seed)
    return torch.randint(tensor.numel(), (SAMPLED_ELEMENTS,), generator=generator, device=tensor.device)


def _taken(tensor: torch.Tensor, places: torch.Tensor | None) -> torch.Tensor:
    flat = tensor.reshape(-1)
    return flat.clone() if places is None else flat[places]


def _like(layout: Layout, region: Region) -> Region:
    return layout.add(region.shape, dtype_named(region.dtype), region.order)
