"""Detects random numbers in a reference's forward, and replays them in float64.

A candidate cannot draw the reference's random numbers, unless the problem says that it must. Then
both run under the same state of torch's generator. A dropout in float64 draws another mask than one
in float32, though. So the judge records what the eager forward draws, and replays it, cast, in the
exact one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from harness.aten.dispatching import DispatchMode
from harness.errors import ProblemError
from harness.judge.inputs.draws import generators
from harness.wire.host_generators import HostStates, host_states

#: Elements that are compared at once.
PIECE = 1 << 24
#: If two seeds differ by more than this multiple of the difference under one seed, the order of
#: summation cannot explain it.
BEYOND_ROUNDING = 8
#: Operators whose results are only drawn. No gradient goes through them, and the judge may cast
#: them.
_DRAWS = frozenset(
    (
        *("bernoulli", "binomial", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal"),
        *("poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "random", "randperm"),
        "uniform",
    )
)
_DROPOUT = "native_dropout"
REMEDY = (
    "put the model into evaluation mode (TRAINING = False), pass the random numbers to forward as an input, "
    "or declare RANDOMNESS = 'same-generator', if a candidate is to draw the same numbers by the same calls "
    "of torch"
)


class States(NamedTuple):
    """The states of all generators from which a forward may draw."""

    torch: list[torch.Tensor]
    host: HostStates


class Drawn(NamedTuple):
    """The random numbers that one operator drew, such as the mask of a dropout, and its name."""

    operator: str
    numbers: torch.Tensor


def states() -> States:
    """Return the current states."""
    return States([generator.get_state() for generator in generators()], host_states())


def drawn_since(before: States) -> frozenset[str]:
    """Return the generators that have been used since: ``torch``, and ``random`` for Python's and NumPy's."""
    now = states()
    found = set()
    if len(before.torch) != len(now.torch) or not all(map(torch.equal, before.torch, now.torch)):
        found.add("torch")
    if before.host != now.host:
        found.add("random")
    return frozenset(found)


def distance(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> float:
    """Return the largest difference between two runs' elements; infinite if shapes differ."""
    largest = 0.0
    for one, other in zip(first, second, strict=True):
        if one.shape != other.shape:
            return float("inf")
        for mine, theirs in zip(_pieces(one), _pieces(other), strict=True):
            same = (mine == theirs) | (mine.isnan() & theirs.isnan())
            apart = torch.where(same, 0.0, (mine - theirs).abs()).nan_to_num(float("inf"))
            largest = max(largest, float(apart.max()))
    return largest


def magnitude(tensor: torch.Tensor) -> float:
    """Return the magnitude of a tensor's largest element; 0 without elements."""
    return max((float(piece.abs().max()) for piece in _pieces(tensor)), default=0.0)


def _pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield a tensor's elements in float64, so many at a time: a large output leaves no room for copies of it."""
    if tensor.numel():
        for piece in torch.split(tensor.detach().reshape(-1), PIECE):
            yield piece.to(torch.float64)


class Recording(DispatchMode):  # type: ignore[no-untyped-call]
    """Records the random numbers drawn within a ``with`` block.

    Attributes:
        kept: The random numbers, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Drawn] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = _random_operator(func)
        if name:
            numbers = result[1] if name == _DROPOUT else result
            if name != _DROPOUT and not (name.removesuffix("_") in _DRAWS and isinstance(numbers, torch.Tensor)):
                raise ProblemError(
                    f"torch's operator {name} draws random numbers inside the reference, and the judge "
                    "cannot repeat them in float64: draw with torch.rand or torch.randn and compute the rest from "
                    "those, or pass the random numbers to forward as an input"
                )
            self.kept.append(Drawn(name, numbers.detach().clone()))
        return result


class Replaying(DispatchMode):  # type: ignore[no-untyped-call]
    """Replays recorded random numbers within a ``with`` block, floating ones in another dtype.

    Args:
        kept: The record of ``Recording`` from the same forward.
        dtype: The dtype.
    """

    def __init__(self, kept: Sequence[Drawn], dtype: torch.dtype):
        super().__init__()
        self._left = list(reversed(kept))
        self._dtype = dtype

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = _random_operator(func)
        if not name:
            return func(*args, **(kwargs or {}))
        drawn = self._left.pop() if self._left else None
        if drawn is None or drawn.operator != name:
            raise ProblemError(
                f"the reference draws different random numbers in float64 than in its own precision ({name})"
            )
        if name == _DROPOUT:
            values, share = args[0], args[1]
            kept_share = 1 - share if args[2] in (None, True) else 1.0
            return values * drawn.numbers * (1 / kept_share if kept_share else 0.0), drawn.numbers.clone()
        if name.endswith("_"):
            return args[0].copy_(drawn.numbers)
        return drawn.numbers.to(self._dtype) if drawn.numbers.is_floating_point() else drawn.numbers.clone()


def _random_operator(func: Any) -> str:
    """Return the name of an operator that draws from a generator; empty for all others."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return ""
    name: str = func._schema.name.partition("::")[2]
    return name
