"""Watches a forward for operators with a kink: finds, counts or moves the elements near one.

A watcher runs inside a dispatch mode, which calls it just before each operator that has a kink.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from harness.aten.dispatching import DispatchMode
from harness.judge.inputs.draws import derive_seed
from harness.judge.reference.branch_operators import Edge, edges_of
from harness.judge.reference.equivalence import MAX_FACTOR

#: How far past the edge an element moves, as a part of its distance.
OVERSHOOT = 2.0**-20
#: Elements of more than this multiple of a small one's magnitude are judged apart (``usual_limit``).
UNUSUAL = 1e3
#: About as many elements show what is usual.
GLANCED = 1 << 12


class Reach(NamedTuple):
    """Bounds on how far rounding may move the elements that one comparison looks at.

    Attributes:
        usual: Bound for elements of usual magnitude.
        every: Bound for all others.
        limit: The largest usual magnitude.
        at_zero: Bound for elements that are exactly zero. It is smaller if eager has the same zeros, which no
            computation rounded, such as the norm of a sample of zeros.
    """

    usual: float
    every: float
    limit: float
    at_zero: float

    def near(self, moved: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
        """Mark elements within the bound of where a comparison turns.

        Those exactly there do not count: rounding never moves them.

        Args:
            moved: The elements.
            distance: Their distances from there, of the same shape.
        """
        near = (distance > 0) & (distance <= self.every)
        if self.at_zero < self.every:
            near &= (moved != 0) | (distance <= self.at_zero)
        return near if self.limit == math.inf else near & ((distance <= self.usual) | (moved.abs() > self.limit))


class Bounds:
    """Bounds on how far rounding may move the operands of each kink, in the forward's order.

    Args:
        floor: The least error to expect, over the RMS of a tensor.
    """

    def __init__(self, floor: float):
        self._floor = floor
        self._known: list[tuple[str, list[Reach]]] = []

    def learn(self, name: str, edges: Sequence[Edge], eager: Sequence[Sequence[torch.Tensor]]) -> None:
        """Learn the bounds of the next operator from eager's operands (empty if eager ran another)."""
        of_tensor: dict[int, Reach] = {}
        for position, edge in enumerate(edges):
            for number, exact in enumerate(edge.compared):
                if id(exact) not in of_tensor:
                    other = eager[position][number] if eager else None
                    if name == "abs" and other is not None:  # an eigenvector's sign is no rounding
                        other = torch.copysign(other, exact)
                    of_tensor[id(exact)] = self._reach(exact, other)
        self._known.append((name, [_added(edge, [of_tensor[id(exact)] for exact in edge.compared]) for edge in edges]))

    def of(self, place: int, name: str, edges: Sequence[Edge]) -> list[Reach]:
        """Return the bounds of an operator's edges; from the floor alone if unknown here."""
        if place < len(self._known):
            before, values = self._known[place]
            if before == name and len(values) == len(edges):
                return values
        return [_added(edge, [self._reach(exact, None) for exact in edge.compared]) for edge in edges]

    def _reach(self, exact: torch.Tensor, eager: torch.Tensor | None) -> Reach:
        if not exact.is_floating_point() or not exact.numel():
            return Reach(0.0, 0.0, math.inf, 0.0)
        finite = exact.isfinite()
        values = torch.where(finite, exact, 0.0)
        error = None if eager is None else torch.where(finite & eager.isfinite(), eager.to(exact.dtype) - values, 0.0)
        every, limit = self._bound(values, error), usual_limit(values)
        at_zero = every if error is None or bool(error[exact == 0].any()) else 0.0
        is_usual = values.abs() <= limit
        if bool(is_usual.all()):
            return Reach(every, every, math.inf, at_zero)
        usual = self._bound(values[is_usual], None if error is None else error[is_usual])
        return Reach(usual, every, limit, at_zero)

    def _bound(self, values: torch.Tensor, error: torch.Tensor | None) -> float:
        floor = self._floor * float(torch.linalg.vector_norm(values)) / math.sqrt(values.numel())
        if error is None:
            return floor
        largest = max(float(end.abs()) for end in error.aminmax())
        # Eager has these bits exactly, so no computation rounded them.
        return max(MAX_FACTOR * largest, floor) if largest else 0.0


def usual_limit(values: torch.Tensor) -> float:
    """Return the magnitude beyond which elements say nothing of the rounding of others, such as a mask's -1e9.

    Args:
        values: Finite numbers, at least one.

    Returns:
        ``UNUSUAL`` times the magnitude below which one element of a hundred lies, zeros aside.
    """
    some = values.reshape(-1)[:: values.numel() // GLANCED + 1].abs()
    some = some[some > 0]
    return UNUSUAL * float(some.kthvalue(1 + some.numel() // 100).values) if some.numel() else math.inf


def _added(edge: Edge, reaches: Sequence[Reach]) -> Reach:
    usual, every = (sum(values) for values in zip(*((one.usual, one.every) for one in reaches), strict=True))
    own = next((one for tensor, one in zip(edge.compared, reaches, strict=True) if tensor is edge.moved), None)
    if own is None:
        return Reach(every, every, math.inf, every)
    return Reach(usual, every, own.limit, own.at_zero + (every - own.every))


class Watcher:
    """Base class of watchers; on its own it only notices operators with a kink.

    Attributes:
        found: Whether the forward had one.
    """

    def __init__(self) -> None:
        self.found = False
        self._place = 0

    def before(self, name: str, edges: list[Edge]) -> None:
        """Handle an operator with a kink that is about to run."""
        self.found = True
        self.meet(self._place, name, edges)
        self._place += 1

    def meet(self, place: int, name: str, edges: list[Edge]) -> None:
        """Act on this operator, the ``place``-th with a kink in its forward."""

    def copied(self, source: torch.Tensor, result: torch.Tensor) -> None:
        """Handle the clone of a tensor."""


class Watching(DispatchMode):  # type: ignore[no-untyped-call]
    """Calls a watcher at each operator with a kink within a ``with`` block.

    Args:
        watcher: The watcher.
    """

    def __init__(self, watcher: Watcher):
        super().__init__()
        self._watcher = watcher

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, edges = edges_of(func, args, kwargs or {})
        if edges:
            self._watcher.before(name, edges)
        result = func(*args, **(kwargs or {}))
        if name == "clone":
            self._watcher.copied(args[0], result)
        return result


class EagerOperands(Watcher):
    """Keeps copies of the operands that eager compares."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[str, list[list[torch.Tensor]]]] = []

    def meet(self, place: int, name: str, edges: list[Edge]) -> None:
        """Keep copies of the operator's compared tensors."""
        copies: dict[int, torch.Tensor] = {}
        for edge in edges:
            for tensor in edge.compared:
                copies.setdefault(id(tensor), tensor.clone())
        self.kept.append((name, [[copies[id(tensor)] for tensor in edge.compared] for edge in edges]))

    def at(self, place: int, name: str, edges: Sequence[Edge]) -> list[list[torch.Tensor]]:
        """Return what eager compared at this place; empty if it ran another operator there."""
        if place >= len(self.kept):
            return []
        before, kept = self.kept[place]
        forms = [[tensor.shape for tensor in edge.compared] for edge in edges]
        same = before == name and [[tensor.shape for tensor in tensors] for tensors in kept] == forms
        return kept if same else []


class Counter(Watcher):
    """Counts the elements within rounding of a branch, by sample.

    Args:
        bounds: How far rounding reaches.
        samples: Number of samples in this evaluation.
        eager: If given, the counter learns the bounds from these operands on the way.
    """

    def __init__(self, bounds: Bounds, samples: int, eager: EagerOperands | None = None):
        super().__init__()
        self._bounds = bounds
        self._eager = eager
        self._samples = samples
        self._counts: list[torch.Tensor] = []
        self._others: list[torch.Tensor] = []

    def meet(self, place: int, name: str, edges: list[Edge]) -> None:
        """Count the operator's near elements."""
        if self._eager is not None:
            self._bounds.learn(name, edges, self._eager.at(place, name, edges))
        for edge, bound in zip(edges, self._bounds.of(place, name, edges), strict=True):
            if bound.every == 0:
                continue
            near = bound.near(edge.moved, edge.distance())
            rows = _by_sample(near, self._samples)
            if rows is None:
                self._others.append(near.sum())
            else:
                self._counts.append(rows.sum(1))

    def by_sample(self) -> torch.Tensor:
        """Return the near elements in each sample, int64 of shape (samples,), on the CPU."""
        if not self._counts:
            return torch.zeros(self._samples, dtype=torch.int64)
        return torch.stack(self._counts).sum(0).cpu()

    def of_no_sample(self) -> int:
        """Return the number of near elements in tensors that do not carry the batch."""
        return sum(int(count) for count in self._others)


class Mover(Watcher):
    """Moves near elements just past their edge, or just as far away from it.

    Every element has a random sign and one of ``runs - 1`` columns of a Hadamard matrix. Each run
    uses one row of that matrix. No two columns agree in more than half of the runs.

    So over the runs the mean square of the change is at least a quarter of two sums of squares: of
    the changes that single elements make, and of the change that all make together. Effects cancel
    only between elements that share a column.

    The mover writes to the storage, which autograd's saved tensors share, so gradients see the move
    too.

    Args:
        bounds: How far rounding reaches.
        seed: Seed of the signs, the same in all runs.
        run: The number of this run, from 0.
        runs: Number of runs, a power of two of at least 2.
    """

    def __init__(self, bounds: Bounds, seed: int, run: int, runs: int):
        super().__init__()
        self._bounds = bounds
        self._seed = seed
        self._row = [(-1) ** (run & column).bit_count() for column in range(1, runs)]
        self._clone: tuple[Any, torch.Tensor] | None = None
        self._moved: list[tuple[torch.Tensor, torch.Tensor]] = []

    def copied(self, source: torch.Tensor, result: torch.Tensor) -> None:
        """Remember a clone: autograd saves one before an in-place operator, and it must move too."""
        self._clone = (source, result)

    def meet(self, place: int, name: str, edges: list[Edge]) -> None:
        """Move the operator's near elements."""
        for number, (edge, bound) in enumerate(zip(edges, self._bounds.of(place, name, edges), strict=True)):
            x = edge.moved
            if bound.every == 0 or (x.is_leaf and x.requires_grad):
                continue
            distance = edge.distance()
            near = bound.near(x, distance)
            for before, mask in self._moved:
                if _same_memory(before, x):
                    near &= ~mask
            if not bool(near.any()):
                continue
            signs = self._signs(near, derive_seed(str(self._seed), place, number))
            step = distance * (1 + OVERSHOOT) + 4 * torch.finfo(x.dtype).eps * x.abs()
            delta = torch.where(near, step * signs, 0.0)
            _add_in_place(x, delta)
            if self._clone is not None and self._clone[0] is x:
                _add_in_place(self._clone[1], delta)
            self._moved.append((x, near))

    def _signs(self, near: torch.Tensor, seed: int) -> torch.Tensor:
        """Return a sign for each element; near ones take the columns in turn, so neighbours differ."""
        generator = torch.Generator(near.device).manual_seed(seed)
        signs = torch.randint(0, 2, near.shape, generator=generator, device=near.device, dtype=torch.int8) * 2 - 1
        columns = near.flatten().cumsum(0).view(near.shape) % len(self._row)
        return signs * torch.tensor(self._row, dtype=torch.int8, device=near.device)[columns]


def _by_sample(near: torch.Tensor, samples: int) -> torch.Tensor | None:
    """Move the batch first, out of a dimension of its length or of a joined dimension 0."""
    carrying = [dim for dim, extent in enumerate(near.shape) if extent == samples]
    if carrying:
        near = near.movedim(carrying[0], 0)
    elif not near.dim() or near.shape[0] % samples:
        return None
    return near.reshape(samples, -1)


def _same_memory(first: torch.Tensor, second: torch.Tensor) -> bool:
    return (
        first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        and first.storage_offset() == second.storage_offset()
        and first.shape == second.shape
        and first.stride() == second.stride()
    )


def _add_in_place(x: torch.Tensor, delta: torch.Tensor) -> None:
    """Add to a tensor's storage without autograd's knowledge, once along an expanded dimension."""
    target = x.data
    for dim, extent in enumerate(x.shape):
        if extent > 1 and target.stride(dim) == 0:
            target, delta = target.narrow(dim, 0, 1), delta.narrow(dim, 0, 1)
    target.add_(delta)
