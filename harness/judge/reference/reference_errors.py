"""Measures how far other evaluations of the reference are from the exact one; budgets use that.

Nothing here comes from a candidate. Outputs, and gradients under the cotangents ``normal`` and
``ones``, follow from the draw alone. For the cotangent that is the output itself, the exact output
stands in, and it stays with the judge. So the candidates of a batch, which get the same draws,
share what was measured for the first of them. See docs/numerics.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from harness.judge.inputs.buffers import PREFIX
from harness.judge.inputs.draws import OwnOutput
from harness.judge.reference.equivalence import Giants, Slices, deviation, giants_of, joined, magnitude
from harness.judge.reference.graph import Graph
from harness.judge.reference.kinks import MOST_EXCUSED
from harness.wire.structure import paths_of

Parts = list[Slices]
#: The most by which a gradient's scale may exceed its magnitude under the normal cotangent.
MOST_AMPLIFIED = 8.0
#: Kinds of evaluations beside the exact one: exact ones with elements near a kink moved to its other
#: side; eager ones, and what is left of these where flips excuse an element's error; and exact ones
#: with the operands of products rounded in each of ``reduced_precision.WAYS`` (none in the class
#: fp32).
KINDS = ("moved", "eager", "eager left", "rounded")
#: Names of the first cotangent, and of the one that is the output itself.
NORMAL, OWN_OUTPUT = "normal", "output"


def _by_kind() -> dict[str, dict[str, Parts]]:
    return {kind: {} for kind in KINDS}


class Influence:
    """The influence of branch flips: how far any ``moved`` run changes each element of some tensors.

    Equal changes may cancel under a cotangent of ones. So the influence under another cotangent counts, too.

    Args:
        other: The influence under the normal cotangent; None where this is it, or for outputs.
    """

    def __init__(self, other: Influence | None = None):
        self._other = other
        self._parts: dict[str, dict[int, torch.Tensor]] = {}

    def take(self, name: str, piece: slice | None, change: torch.Tensor) -> None:
        """Add the changes of a tensor, or of its piece of the batch, in one run."""
        parts, first = self._parts.setdefault(name, {}), 0 if piece is None else piece.start
        change = change.abs().nan_to_num(0.0, 0.0, 0.0).to(torch.bfloat16)
        change.masked_fill_(change.isinf(), 0.0)  # Rounding to so few bits may overflow.
        parts[first] = torch.maximum(parts[first], change) if first in parts else change

    def rest(self) -> None:
        """Leave the device, whose memory the next piece needs."""
        for parts in self._parts.values():
            for first, part in parts.items():
                parts[first] = part.cpu()

    def of(self, name: str, piece: slice | None) -> torch.Tensor | None:
        """Return the largest change of each element, bfloat16; None where nothing was measured."""
        found = self._of(name, piece)
        other = None if self._other is None else self._other.of(name, piece)
        if found is None or other is None:
            return found
        return torch.maximum(found, other.to(found.device))

    def _of(self, name: str, piece: slice | None) -> torch.Tensor | None:
        parts = self._parts.get(name)
        if not parts:
            return None
        part = parts.get(0 if piece is None else piece.start)
        if part is not None and (len(parts) == 1 if piece is None else len(part) == piece.stop - piece.start):
            return part
        return rows_of(torch.cat([parts[first].cpu() for first in sorted(parts)]), piece)

    def forget(self) -> None:
        """Release the memory."""
        self._parts.clear()

    @property
    def bytes(self) -> int:
        """Memory that the changes take, in bytes."""
        return sum(part.nbytes for parts in self._parts.values() for part in parts.values())


@dataclass(frozen=True)
class Gauge:
    """Deviations of the other evaluations, for all outputs or all gradients under one cotangent.

    Attributes:
        scale: The exact tensors' magnitudes, by name.
        runs: Deviations by kind and name, one for each run.
        influence: What flips change of each element.
    """

    scale: dict[str, Slices] = field(default_factory=dict)
    runs: dict[str, dict[str, Parts]] = field(default_factory=_by_kind)
    influence: Influence = field(default_factory=Influence)

    @property
    def is_cut(self) -> bool:
        """Returns true if the influence of flips was measured and is no longer known."""
        return bool(self.runs["moved"]) and not self.influence.bytes

    def of(self, kind: str, name: str) -> Parts:
        """Return a tensor's deviations in the runs of a kind."""
        return self.runs[kind].get(name, [])

    def rows(self, piece: slice | None, names: Iterable[str]) -> Gauge:
        """Return the part of the gauge about some tensors in a piece of the batch."""
        if piece is None:
            return self
        first, count = piece.start, piece.stop - piece.start
        return Gauge(
            {name: self.scale[name].rows(first, count) for name in names if name in self.scale},
            {
                kind: {name: [run.rows(first, count) for run in runs[name]] for name in names if name in runs}
                for kind, runs in self.runs.items()
            },
        )

    @property
    def bytes(self) -> int:
        """Memory that the sums take, in bytes."""
        runs = (run for by_name in self.runs.values() for parts in by_name.values() for run in parts)
        sums = sum(one.squares.nbytes + one.maximum.nbytes for one in (*self.scale.values(), *runs))
        return sums + self.influence.bytes


#: The gauges of one draw by the cotangent's name, "" for the outputs.
Gauges = dict[str, Gauge]


class Deviations:
    """Collects deviations of evaluations of one draw, piece by piece of the batch.

    For each piece the exact evaluation comes first, then the others.

    Args:
        names: The tensors to measure.
        by_rows: Names of the tensors that come in pieces. All others are gradients of parameters,
            which are sums over the pieces.
        cotangent: One tensor per output; None to measure the outputs themselves.
        own_output: The cotangent's form if it is the exact output itself; else None.
        known: The gauge under this very cotangent, if measured before. Its magnitudes serve again.
        influence: Where the influence of flips goes.

    Attributes:
        exact: The exact tensors of the current piece, by name.
        giants: The giants of those that are outputs.
    """

    def __init__(
        self,
        names: Iterable[str],
        by_rows: frozenset[str],
        cotangent: Sequence[torch.Tensor] | None = None,
        own_output: OwnOutput | None = None,
        known: Gauge | None = None,
        influence: Influence | None = None,
    ):
        self._known = {} if known is None else known.scale
        self._influence = Influence() if influence is None else influence
        self._piece: slice | None = None
        self.exact: dict[str, torch.Tensor] = {}
        self.giants: dict[str, Giants | None] = {}
        self._names = frozenset(names)
        self._by_rows = by_rows
        self._cotangent = cotangent
        self._own_output = own_output
        self._part: list[torch.Tensor] | None = None
        self._totals: dict[tuple[str, int], dict[str, torch.Tensor]] = {}
        self._scale: dict[str, Parts] = {}
        self._runs: dict[str, dict[tuple[str, int], Parts]] = {kind: {} for kind in KINDS}

    def begin(self, graph: Graph, piece: slice | None) -> None:
        """Add the exact evaluation of a piece."""
        if self._own_output is not None:
            self._part = self._own_output.of(graph.outputs)
        elif self._cotangent is not None:
            self._part = [rows_of(one, piece) for one in self._cotangent]
        self._piece = piece
        self.exact = self.found("exact", 0, graph)
        if self._part is None:
            self.giants = {name: giants_of(one) for name, one in self.exact.items() if one.is_floating_point()}
        self._book_scale(piece)

    def begin_totals(self) -> None:
        """Turn to tensors that are sums over the pieces, once all pieces are in."""
        self._piece = None
        self.exact = self._totals.pop(("exact", 0), {})
        self._book_scale(None)

    def add_totals(self) -> None:
        """Book the sums of the other evaluations; call it after ``begin_totals``."""
        for (kind, number), total in self._totals.items():
            self.book(kind, number, total)
        self._totals.clear()

    def found(self, kind: str, number: int, graph: Graph, order: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """Return an evaluation's tensors by name, with the batch in its own order.

        Tensors that are sums over the pieces go to the totals instead.

        Args:
            kind: One of ``KINDS``, or ``exact``.
            number: The number of the evaluation among its kind.
            graph: An evaluation of the current piece.
            order: The order that its samples are in; None for their own.
        """
        if self._part is None:
            return self._outputs_of(graph, order)
        totals = self._totals.setdefault((kind, number), {})
        of_inputs = {}
        for name, gradient in graph.gradients([ordered(one, order) for one in self._part]).items():
            if gradient is None:
                continue
            if name in self._by_rows:
                of_inputs[name] = unpermuted(gradient, order)
            elif name in self._names:
                totals[name] = totals[name] + gradient if name in totals else gradient
        return of_inputs

    def at_hand(self, graph: Graph, piece: slice | None) -> dict[str, torch.Tensor]:
        """Return an evaluation's tensors in a piece, with partial sums; books nothing."""
        if self._cotangent is None:
            return self._outputs_of(graph, None)
        part = [rows_of(one, piece) for one in self._cotangent]
        return {name: gradient for name, gradient in graph.gradients(part).items() if gradient is not None}

    def last_scale(self, name: str) -> Slices:
        """Return a tensor's magnitude in the current piece."""
        return self._scale[name][-1]

    @property
    def last(self) -> Gauge:
        """The gauge of the current piece."""
        return self._gauge(lambda parts: parts[-1], self.exact)

    @property
    def whole(self) -> Gauge:
        """The gauge of all pieces together."""
        return self._gauge(joined, self._scale)

    def _outputs_of(self, graph: Graph, order: torch.Tensor | None) -> dict[str, torch.Tensor]:
        named = dict(zip(paths_of(graph.structure), graph.outputs, strict=True))
        named |= {PREFIX + name: buffer for name, buffer in graph.buffers.items()}
        return {name: unpermuted(named[name].detach(), order) for name in self._names}

    def _gauge(self, one: Callable[[Parts], Slices], names: Collection[str]) -> Gauge:
        gauge = Gauge({name: one(self._scale[name]) for name in names}, influence=self._influence)
        for kind, runs in self._runs.items():
            for (name, _), parts in runs.items():
                if name in names:
                    gauge.runs[kind].setdefault(name, []).append(one(parts))
        return gauge

    def _book_scale(self, piece: slice | None) -> None:
        for name, expected in self.exact.items():
            known = self._known.get(name)
            if known is not None and (piece is None or known.by_slice):
                scale = known if piece is None else known.rows(piece.start, piece.stop - piece.start)
            else:
                scale = magnitude(expected.to(torch.float64), self.giants.get(name))
            self._scale.setdefault(name, []).append(scale)

    def book(self, kind: str, number: int, found: Mapping[str, torch.Tensor]) -> None:
        """Add the deviations of tensors ``found`` in an evaluation of the current piece."""
        for name, tensor in found.items():
            if name not in self.exact or tensor.shape != self.exact[name].shape:
                continue
            received, exact = real(tensor.detach()), self.exact[name].to(torch.float64)
            error = deviation(received, exact, giants=self.giants.get(name))
            self._runs[kind].setdefault((name, number), []).append(error)
            if kind == "moved":
                self._influence.take(name, self._piece, received - exact)
            elif kind == "eager" and (excused := excused_by(self._influence.of(name, self._piece))) is not None:
                left = deviation(received, exact, excused, self.giants.get(name))
                self._runs["eager left"].setdefault((name, number), []).append(left)


def unpermuted(tensor: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    """Undo a permutation of dimension 0; tensors that do not carry the batch return unchanged."""
    if order is None or tensor.dim() == 0 or tensor.shape[0] != order.numel():
        return tensor
    return tensor[torch.argsort(order).to(tensor.device)]


def scale_under(cotangent: str, scales: Mapping[str, Slices]) -> Slices:
    """Return what the errors of a tensor under a cotangent are divided by.

    That is its largest magnitude under any cotangent: terms of a gradient may cancel, and errors of
    one sign add up. Under the normal cotangent it is at most ``MOST_AMPLIFIED`` times the magnitude
    there: a sum of positive numbers under a constant cotangent would hide too much. A sample whose
    sum over the cotangent is small by chance is not held to that.

    Args:
        cotangent: The cotangent's name, "" for an output.
        scales: The exact tensor's magnitudes by cotangent, at least one.
    """
    largest = functools.reduce(Slices.larger, scales.values())
    return largest.at_most(MOST_AMPLIFIED, scales[NORMAL]) if cotangent == NORMAL and NORMAL in scales else largest


def excused_by(influence: torch.Tensor | None) -> torch.Tensor | None:
    """Return the error that flips excuse in each element, by their influence on it."""
    return None if influence is None else influence * MOST_EXCUSED


def rows_of(tensor: torch.Tensor, piece: slice | None) -> torch.Tensor:
    """Return a tensor's samples in a piece of the batch."""
    return tensor if piece is None else tensor[piece]


def ordered(tensor: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    """Return a tensor's samples in another order; None keeps their order."""
    return tensor if order is None else tensor[order.to(tensor.device)]


def real(tensor: torch.Tensor) -> torch.Tensor:
    """Convert integers and truth values to float64; floating tensors stay."""
    return tensor if tensor.is_floating_point() else tensor.to(torch.float64)
