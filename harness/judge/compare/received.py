"""Holds the candidate's tensors and their deviations while the pieces of a trial come in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from harness.judge.compare.error_pattern import ErrorPattern
from harness.judge.reference.equivalence import Allowance, Slices, deviation
from harness.judge.reference.reference_errors import (
    Deviations,
    Influence,
    Parts,
    excused_by,
    real,
    rows_of,
    scale_under,
)


@dataclass(frozen=True)
class ReceivedGradients:
    """A candidate's gradients under one cotangent.

    Attributes:
        name: The cotangent's name, for reports.
        cotangent: One tensor per output.
        gradients: The candidate's gradients (private copies) by leaf. A string in place of a tensor
            says what is wrong with that gradient.
        alone: The only output that has a cotangent; those of the others are zeros here. None for all of
            them.
    """

    name: str
    cotangent: Sequence[torch.Tensor]
    gradients: Mapping[str, torch.Tensor | str]
    alone: int | None = None

    @property
    def bytes(self) -> int:
        """Memory that another answer of this form takes, in bytes."""
        tensors = (*self.cotangent, *(one for one in self.gradients.values() if isinstance(one, torch.Tensor)))
        return sum(min(tensor.nbytes, tensor.untyped_storage().nbytes()) for tensor in tensors)


class ReceivedError(NamedTuple):
    """A candidate's deviation in one tensor.

    Attributes:
        whole: The deviation.
        left: What is left of it where flips excuse an element's error. None where there are none.
        looks: Error patterns of suspicious pieces.
    """

    whole: Slices
    left: Slices | None
    looks: list[ErrorPattern]


@dataclass
class ReceivedTensor:
    """The record of one tensor while its deviations come in.

    Attributes:
        shape: Shape of the candidate's tensor.
        dtype: Name of its dtype; empty where the candidate gave no tensor.
        scales: Magnitude of the exact tensor by cotangent.
        received: The candidate's deviation by cotangent ("" for an output).
        note: What is wrong with the tensor's form, and the cotangent under which it is.
    """

    shape: tuple[int, ...]
    dtype: str
    scales: dict[str, Slices] = field(default_factory=dict)
    received: dict[str, ReceivedError] = field(default_factory=dict)
    note: tuple[str, str] | None = None

    def scale(self, cotangent: str) -> Slices | None:
        """Return what errors under a cotangent are divided by; None where no exact tensor is known."""
        return scale_under(cotangent, self.scales) if self.scales else None


@dataclass
class TensorTally:
    """The outputs, or the gradients under one cotangent, while the pieces come in.

    Attributes:
        name: The cotangent's name; "" for the outputs.
        mine: The candidate's tensors by name.
        judged: The records to which the sums go.
        reference: The exact evaluation under the candidate's cotangent.
        gauged: The evaluations from which the gauge of this name is made. None where the gauge is
            known.
        influence: What flips change of each element. None where it does not matter.
        received: The candidate's deviations by tensor, one per piece.
        left: What is left of them where flips excuse an element's error.
        looks: Error patterns of the pieces beyond their budget, by tensor.
    """

    name: str
    mine: Mapping[str, torch.Tensor]
    judged: dict[str, ReceivedTensor]
    reference: Deviations
    gauged: Deviations | None
    influence: Influence | None = None
    received: dict[str, Parts] = field(default_factory=dict)
    left: dict[str, Parts] = field(default_factory=dict)
    looks: dict[str, list[ErrorPattern]] = field(default_factory=dict)

    def add(self, piece: slice | None) -> None:
        """Add the candidate's deviations in a piece, once the reference's other evaluations of it are known."""
        for name, expected in self.reference.exact.items():
            if name not in self.mine:
                continue
            mine = rows_of(self.mine[name], piece)
            if not expected.is_floating_point():
                flips = None if self.influence is None else self.influence.of(name, piece)
                self.received.setdefault(name, []).append(inequality(mine, expected, flips))
                continue
            exact, excused = expected.to(torch.float64), self._excused(name, piece)
            giants = self.reference.giants.get(name)
            self.received.setdefault(name, []).append(deviation(real(mine), exact, giants=giants))
            if excused is not None:
                self.left.setdefault(name, []).append(deviation(real(mine), exact, excused, giants))

    def compared(
        self, name: str, piece: slice | None, hides_flips: bool, allowance: Allowance
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the candidate's tensor in a piece, as floating numbers, and the exact one in float64.

        With ``hides_flips``, elements whose error flips excuse have the exact value. So have giants that are
        right: the allowance is in the unit of all other elements.
        """
        mine, expected = rows_of(self.mine[name], piece), self.reference.exact[name]
        received, exact = real(mine), expected.to(torch.float64)
        if expected.dtype is torch.int64:  # float64 would hide differences between large integers
            hides = (mine != expected) & (received.to(torch.float64) == exact)
            received = torch.where(hides, torch.nextafter(exact, torch.full_like(exact, torch.inf)), received)
        excused = self._excused(name, piece) if hides_flips else None
        if excused is not None:
            is_flip = (received - exact).abs() <= excused.to(exact.device)
            received = torch.where(is_flip, exact, received.to(torch.float64))
        if giants := self.reference.giants.get(name):
            error = giants.shrunk(received.to(torch.float64) - exact, exact).abs()
            allowed = allowance.maximum.to(exact.device).view(-1, *(1,) * (exact.dim() - 1))
            is_right_giant = giants.are_in(exact) & (error <= allowed)
            received = torch.where(is_right_giant, exact, received.to(torch.float64))
        return received, exact

    def _excused(self, name: str, piece: slice | None) -> torch.Tensor | None:
        """Return the error that flips excuse in each element of a tensor; None where there are none."""
        return None if self.influence is None else excused_by(self.influence.of(name, piece))

    @property
    def gauging(self) -> list[Deviations]:
        """The deviations that need the exact evaluation of each piece."""
        return [self.reference] if self.gauged in (None, self.reference) else [self.reference, self.gauged]


def scale_in_piece(tally: TensorTally, tallies: Sequence[TensorTally], name: str, piece: slice | None) -> Slices:
    """Return what errors of a tensor under the tally's cotangent are divided by in a piece."""
    found = {
        other.name: other.reference.last_scale(name)
        for other in tallies
        if other.judged is tally.judged and name in other.reference.exact
    }
    scale = tally.reference.last_scale(name)
    for cotangent, before in tally.judged[name].scales.items():
        if cotangent not in found and before.elements == scale.elements:
            found[cotangent] = before.rows(0 if piece is None else piece.start, scale.squares.numel())
    return scale_under(tally.name, found)


def inequality(received: torch.Tensor, expected: torch.Tensor, flips: torch.Tensor | None = None) -> Slices:
    """Return the deviation of integers or truth values, at least 1 where they differ.

    Without that minimum, float64 would hide differences between large integers.

    Args:
        received: The candidate's tensor.
        expected: The exact one.
        flips: What flips change of each element, bfloat16. An element that differs by just that much, or
            by the least step, counts as equal: rounding decides between the two values, as for a
            quantised number.
    """
    apart = (received.to(torch.float64) - expected.to(torch.float64)).abs().clamp(min=1)
    difference = torch.where(received == expected, 0.0, apart)
    if flips is not None:
        flips = flips.to(difference.device)
        difference[(difference.to(flips.dtype) == flips) | ((difference == 1) & (flips >= 1))] = 0.0
    return deviation(difference, torch.zeros_like(difference))
