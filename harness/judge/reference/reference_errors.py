"""How far other evaluations of the reference are from the exact one: what budgets and explanations are measured by.

Nothing here is a candidate's. Outputs, and gradients under the cotangents ``normal`` and ``ones``, follow from the draw
alone; for the cotangent that is the output itself the exact output stands in, which stays with the judge. So the
candidates of a batch, which get the same draws, share what was found for the first of them. See docs/numerics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from harness.judge.inputs.buffers import PREFIX
from harness.judge.reference.equivalence import Slices, deviation, joined, magnitude
from harness.judge.reference.reference import Graph, unpermuted
from harness.wire.structure import paths_of

Parts = list[Slices]
#: Kinds of evaluations beside the exact one: eager ones, exact ones whose elements near a kink lie on its other side,
#: and exact ones with rounded operands of products, in each of ``operands.WAYS`` (none in the class fp32).
KINDS = ("eager", "moved", "rounded")
#: The cotangent that is the output itself.
OWN_OUTPUT = "output"


def _by_kind() -> dict[str, dict[str, Parts]]:
    return {kind: {} for kind in KINDS}


@dataclass(frozen=True)
class Gauge:
    """Deviations of the other evaluations, of all outputs or of all gradients under one cotangent.

    Attributes:
        scale: The exact tensors' magnitudes, by name.
        runs: Deviations by kind and name, one for each run.
    """

    scale: dict[str, Slices] = field(default_factory=dict)
    runs: dict[str, dict[str, Parts]] = field(default_factory=_by_kind)

    def of(self, kind: str, name: str) -> Parts:
        """A tensor's deviations in the runs of a kind."""
        return self.runs[kind].get(name, [])

    def rows(self, piece: slice | None, names: Iterable[str]) -> Gauge:
        """What it says of some tensors in a piece of the batch."""
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
        """What it takes in memory."""
        runs = (run for by_name in self.runs.values() for parts in by_name.values() for run in parts)
        return sum(one.squares.nbytes + one.maximum.nbytes for one in (*self.scale.values(), *runs))


#: Of one draw: by the cotangent's name, "" for the outputs.
Gauges = dict[str, Gauge]


def cotangent_like(outputs: Sequence[torch.Tensor], dtypes: Sequence[torch.dtype]) -> list[torch.Tensor]:
    """The exact outputs as the cotangent that they are, in the dtypes that a candidate returns them in."""
    return [output.detach().to(dtype) for output, dtype in zip(outputs, dtypes, strict=True)]


class Deviations:
    """Takes evaluations of one draw in, piece by piece of the batch: first the exact one of a piece, then others.

    Args:
        names: The tensors that matter.
        by_rows: Names of what comes in pieces; all else is a parameter's gradient, and a sum over the pieces.
        cotangent: One tensor per output; None for the outputs themselves.
        own_output: The outputs' dtypes where the cotangent is the output itself, the exact one; else None.
        known: What was measured under this very cotangent before: its magnitudes need no measuring again.

    Attributes:
        exact: The exact tensors of the piece at hand, by name.
    """

    def __init__(
        self,
        names: Iterable[str],
        by_rows: frozenset[str],
        cotangent: Sequence[torch.Tensor] | None = None,
        own_output: Sequence[torch.dtype] | None = None,
        known: Gauge | None = None,
    ):
        self._known = {} if known is None else known.scale
        self.exact: dict[str, torch.Tensor] = {}
        self._names = frozenset(names)
        self._by_rows = by_rows
        self._cotangent = cotangent
        self._own_output = own_output
        self._part: list[torch.Tensor] | None = None
        self._totals: dict[tuple[str, int], dict[str, torch.Tensor]] = {}
        self._scale: dict[str, Parts] = {}
        self._runs: dict[str, dict[tuple[str, int], Parts]] = {kind: {} for kind in KINDS}

    def begin(self, graph: Graph, piece: slice | None) -> None:
        """Take the exact evaluation of a piece in."""
        if self._own_output is not None:
            self._part = cotangent_like(graph.outputs, self._own_output)
        elif self._cotangent is not None:
            self._part = [rows_of(one, piece) for one in self._cotangent]
        self.exact = self.found("exact", 0, graph)
        self._book_scale(piece)

    def begin_totals(self) -> None:
        """Go on to what is a sum over the pieces, once all are in."""
        self.exact = self._totals.pop(("exact", 0), {})
        self._book_scale(None)

    def add_totals(self) -> None:
        """Take the sums of the other evaluations in, after ``begin_totals``."""
        for (kind, number), total in self._totals.items():
            self.book(kind, number, total)
        self._totals.clear()

    def found(self, kind: str, number: int, graph: Graph, order: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """An evaluation's tensors by name, the batch in its own order; sums over the pieces are added to the totals.

        Args:
            kind: One of ``KINDS``, or ``exact``.
            number: Its number among them.
            graph: An evaluation of the piece at hand.
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
        """Any evaluation's tensors of a piece, and its part of what is a sum over the pieces; nothing is booked."""
        if self._cotangent is None:
            return self._outputs_of(graph, None)
        part = [rows_of(one, piece) for one in self._cotangent]
        return {name: gradient for name, gradient in graph.gradients(part).items() if gradient is not None}

    def last_scale(self, name: str) -> Slices:
        """A tensor's magnitude in the piece at hand."""
        return self._scale[name][-1]

    @property
    def last(self) -> Gauge:
        """What the piece at hand came to."""
        return self._gauge(lambda parts: parts[-1], self.exact)

    @property
    def whole(self) -> Gauge:
        """What all pieces came to."""
        return self._gauge(joined, self._scale)

    def _outputs_of(self, graph: Graph, order: torch.Tensor | None) -> dict[str, torch.Tensor]:
        named = dict(zip(paths_of(graph.structure), graph.outputs, strict=True))
        named |= {PREFIX + name: buffer for name, buffer in graph.buffers.items()}
        return {name: unpermuted(named[name].detach(), order) for name in self._names}

    def _gauge(self, one: Callable[[Parts], Slices], names: Collection[str]) -> Gauge:
        gauge = Gauge({name: one(self._scale[name]) for name in names})
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
                scale = magnitude(expected.to(torch.float64))
            self._scale.setdefault(name, []).append(scale)

    def book(self, kind: str, number: int, found: Mapping[str, torch.Tensor]) -> None:
        """Add the deviations of what was ``found`` in an evaluation of the piece at hand."""
        for name, tensor in found.items():
            if name in self.exact and tensor.shape == self.exact[name].shape:
                part = deviation(real(tensor.detach()), self.exact[name].to(torch.float64))
                self._runs[kind].setdefault((name, number), []).append(part)


def rows_of(tensor: torch.Tensor, piece: slice | None) -> torch.Tensor:
    """A tensor's samples in a piece of the batch."""
    return tensor if piece is None else tensor[piece]


def ordered(tensor: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    """A tensor's samples in another order; None for the one they are in."""
    return tensor if order is None else tensor[order.to(tensor.device)]


def real(tensor: torch.Tensor) -> torch.Tensor:
    """Integers and truth values as float64; floating tensors as they are."""
    return tensor if tensor.is_floating_point() else tensor.to(torch.float64)
