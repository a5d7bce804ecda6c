"""Lists operators that branch on a comparison, and measures how far inputs are from the branch.

The table names operators as they reach a dispatch mode: ``ReLU6`` becomes ``hardtanh``, and
``torch.max(a, b)`` becomes ``maximum``. Operators with a continuous first derivative (SiLU, Huber,
CELU) have no edge.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

Arguments: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Edge:
    """One comparison that an operator makes.

    Attributes:
        compared: The floating tensors whose errors together may turn the comparison. If a tensor's
            own elements are compared with each other, it appears twice.
        moved: The tensor among them whose elements are counted, and moved to try the other side.
        distance: Computes the distance from each element of ``moved`` to where the comparison
            turns, in its shape. Infinite for an element that no comparison depends on; zero for a
            tie by construction.
    """

    compared: tuple[torch.Tensor, ...]
    moved: torch.Tensor
    distance: Callable[[], torch.Tensor]


Rule: TypeAlias = Callable[[Arguments], list[Edge]]


def edges_of(operator: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[str, list[Edge]]:
    """Return the comparisons that a call of an operator makes.

    Args:
        operator: The ``OpOverload`` that a dispatch mode gets.
        args: Its positional arguments.
        kwargs: Its keyword arguments.

    Returns:
        The operator's name without the underscore of in-place variants, and its edges. There are
        none if the operator has no kink or compares no floating numbers.
    """
    space, _, name = operator._schema.name.partition("::")
    name = name.rstrip("_")
    rule = _RULES.get(name)
    if space != "aten" or rule is None:
        return name, []
    arguments = {argument.name: argument.default_value for argument in operator._schema.arguments}
    arguments |= dict(zip(arguments, args, strict=False)) | kwargs
    source = arguments.get("self", arguments.get("input"))
    return name, rule(arguments) if isinstance(source, torch.Tensor) and source.numel() else []


def is_real(value: Any) -> bool:
    """Return whether a value is a tensor of floating numbers."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _at(x: torch.Tensor, *edges: float) -> list[Edge]:
    """Make the edge of comparisons with fixed values."""

    def distance() -> torch.Tensor:
        nearest = (x - edges[0]).abs()
        for edge in edges[1:]:
            nearest = torch.minimum(nearest, (x - edge).abs())
        return nearest

    return [Edge((x,), x, distance)] if is_real(x) and edges else []


def _fixed(*edges: float) -> Rule:
    return lambda arguments: _at(arguments["self"], *edges)


def _named(*names: str) -> Rule:
    """Make a rule for edges at the numbers in these arguments."""
    return lambda arguments: _at(arguments["self"], *(float(arguments[name]) for name in names))


def _shrink(arguments: Arguments) -> list[Edge]:
    bound = float(arguments["lambd"])
    return _at(arguments["self"], -bound, bound)


def _elu(arguments: Arguments) -> list[Edge]:
    smooth = arguments["alpha"] * arguments["input_scale"] == 1
    return [] if smooth else _at(arguments["self"], 0.0)


def _pair(first: Any, second: Any) -> list[Edge]:
    """Make the edge of two broadcast operands compared elementwise; the second may be a number."""
    if not isinstance(second, torch.Tensor):
        return [] if isinstance(second, complex) else _at(first, float(second))
    real = tuple(value for value in (first, second) if is_real(value))
    if not real or first.is_complex() or second.is_complex() or not first.numel() or not second.numel():
        return []
    moved = max(real, key=torch.Tensor.numel)
    return [Edge(real, moved, lambda: _reduced((first - second).abs(), moved.shape))]


def _reduced(distance: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Reduce to the least distance along the dimensions in which a tensor was broadcast."""
    for _ in range(distance.dim() - len(shape)):
        distance = distance.amin(0)
    repeated = [dim for dim, extent in enumerate(shape) if extent == 1 and distance.shape[dim] != 1]
    return distance.amin(repeated, keepdim=True) if repeated else distance


def _comparison(arguments: Arguments) -> list[Edge]:
    return _pair(arguments["self"], arguments["other"])


def _clamp(arguments: Arguments) -> list[Edge]:
    x, bounds = arguments["self"], [arguments.get("min"), arguments.get("max")]
    given = [bound for bound in bounds if bound is not None]
    if not any(isinstance(bound, torch.Tensor) for bound in given):
        return _at(x, *(float(bound) for bound in given))
    return [edge for bound in given for edge in _pair(x, bound)]


def _steps(x: torch.Tensor, step: float | torch.Tensor, offset: float = 0.0) -> list[Edge]:
    """Make the edge at every multiple of a step; ``offset`` shifts it by a part of the step."""
    if not is_real(x):
        return []

    def distance() -> torch.Tensor:
        parts = x / step - offset
        width = step.abs() if isinstance(step, torch.Tensor) else abs(step)
        return _reduced((parts - parts.round()).abs() * width, x.shape)

    return [Edge((x,), x, distance)]


def _round(arguments: Arguments) -> list[Edge]:
    return _steps(arguments["self"], float(10.0 ** -int(arguments.get("decimals") or 0)), 0.5)


def _quotient(arguments: Arguments) -> list[Edge]:
    return _steps(arguments["self"], arguments["other"])


def _division(arguments: Arguments) -> list[Edge]:
    return _quotient(arguments) if arguments.get("rounding_mode") else []


def _conversion(arguments: Arguments) -> list[Edge]:
    dtype = arguments["dtype"]
    if dtype is None or dtype.is_floating_point or dtype.is_complex:
        return []
    x = arguments["self"]
    return _at(x, 0.0) if dtype is torch.bool else _steps(x, 1.0)


def _quantised(arguments: Arguments) -> list[Edge]:
    """Make the edges of ``fake_quantize_*``: halfway between two steps of its scale."""
    x, scale = arguments["self"], arguments["scale"]
    if isinstance(scale, torch.Tensor) and "axis" in arguments:
        scale = scale.reshape([-1 if dim == arguments["axis"] % x.dim() else 1 for dim in range(x.dim())])
    return _steps(x, scale, 0.5)


def _exponent(arguments: Arguments) -> list[Edge]:
    """Make the edge of ``frexp`` at powers of two."""
    x = arguments["self"]

    def distance() -> torch.Tensor:
        mantissa, exponent = torch.frexp(x.abs())
        return torch.ldexp(torch.minimum(mantissa - 0.5, 1 - mantissa).abs(), exponent)

    return [Edge((x,), x, distance)] if is_real(x) else []


def _between(x: Any, bounds: torch.Tensor, sorter: torch.Tensor | None = None) -> list[Edge]:
    """Compare elements with sorted numbers, in lines along the last dimension unless there is one line."""
    if not is_real(x) or not bounds.shape[-1]:
        return []

    def distance() -> torch.Tensor:
        lines = (bounds if sorter is None else bounds.gather(-1, sorter)).to(x.dtype)
        above = torch.searchsorted(lines, x).clamp(1, max(lines.shape[-1] - 1, 1))
        below = above - 1
        above = above.clamp(max=lines.shape[-1] - 1)
        near = [lines[place] if lines.dim() == 1 else lines.gather(-1, place) for place in (below, above)]
        return torch.minimum((x - near[0]).abs(), (x - near[1]).abs())

    compared = (x, bounds) if is_real(bounds) else (x,)
    return [Edge(compared, x, distance)]


def _sampled(arguments: Arguments) -> list[Edge]:
    """Make the edge of ``grid_sampler_*``: where a place crosses from one pair of samples to the next.

    Bilinear interpolation has it at samples, the nearest one halfway between them. Bicubic interpolation has none.
    """
    grid, mode = arguments["grid"], int(arguments["interpolation_mode"])
    if not is_real(grid) or mode > 1:
        return []

    def distance() -> torch.Tensor:
        extents = torch.tensor(arguments["input"].shape[2:][::-1], dtype=grid.dtype, device=grid.device)
        unit: torch.Tensor = 2 / ((extents - 1).clamp(min=1) if arguments["align_corners"] else extents)
        places = (grid + 1) / unit - (0.0 if arguments["align_corners"] else 0.5) - 0.5 * mode
        nearest: torch.Tensor = (places - places.round()).abs()
        return nearest * unit

    return [Edge((grid,), grid, distance)]


def _norm(arguments: Arguments) -> list[Edge]:
    order = arguments.get("ord", arguments.get("p"))
    return _at(arguments["self"], 0.0) if order == 1 else []


def _lines(x: torch.Tensor, dims: Any) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
    """Move some dimensions last and join them (None or none for all); also return how to undo it."""
    if isinstance(dims, int):
        dims = [dims]
    if not x.dim():
        return x.reshape(1), lambda lines: lines.reshape(())
    joined = sorted(dim % x.dim() for dim in dims) if dims else list(range(x.dim()))
    order = [dim for dim in range(x.dim()) if dim not in joined] + joined
    shuffled = x.permute(order)
    lines = shuffled.reshape(*shuffled.shape[: x.dim() - len(joined)], -1)
    back = [order.index(dim) for dim in range(x.dim())]
    return lines, lambda result: result.reshape(shuffled.shape).permute(back)


def _best(*signs: int) -> Rule:
    """Make a rule for the lead of the largest (1) or smallest (-1) element along ``dim``."""

    def edge(x: torch.Tensor, dim: Any, sign: int) -> list[Edge]:
        lines, undo = _lines(x, dim)
        if lines.shape[-1] < 2:
            return []

        def distance() -> torch.Tensor:
            values, places = (sign * lines).topk(2, -1)
            return undo(
                torch.full_like(lines, math.inf).scatter_(-1, places[..., :1], values[..., :1] - values[..., 1:])
            )

        return [Edge((x, x), x, distance)]

    def rule(arguments: Arguments) -> list[Edge]:
        x = arguments["self"]
        if not is_real(x):
            return []
        if "other" in arguments:  # The overload ``torch.max(a, b)``.
            return _pair(x, arguments["other"])
        return [found for sign in signs for found in edge(x, arguments.get("dim"), sign)]

    return rule


def _order(x: torch.Tensor, dim: Any, first: int, last: int, sign: int = 1) -> list[Edge]:
    """Compare neighbours in sorted order, ascending (1) or descending (-1), between two ranks."""
    if not is_real(x):
        return []
    lines, undo = _lines(x, dim)
    first, last = max(first, 0), min(last, lines.shape[-1] - 1)
    if first >= last:
        return []

    def distance() -> torch.Tensor:
        values, places = (sign * lines).sort(-1)
        gaps = (values[..., first + 1 : last + 1] - values[..., first:last]).abs()
        return undo(torch.full_like(lines, math.inf).scatter_(-1, places[..., first:last], gaps))

    return [Edge((x, x), x, distance)]


def _sort(arguments: Arguments) -> list[Edge]:
    x = arguments["self"]
    return _order(x, arguments["dim"], 0, x.numel())


def _topk(arguments: Arguments) -> list[Edge]:
    return _order(arguments["self"], arguments["dim"], 0, int(arguments["k"]), -1 if arguments["largest"] else 1)


def _rank(arguments: Arguments) -> list[Edge]:
    """Compare the element of a given rank with its two neighbours in the order."""
    x, dim = arguments["self"], arguments.get("dim")
    extent = x.numel() if dim is None or not x.dim() else x.shape[dim]
    place = int(arguments["k"]) - 1 if "k" in arguments else (extent - 1) // 2
    return _order(x, dim, place - 1, place + 1)


def _running(sign: int) -> Rule:
    """Make a rule for ``cummax`` and ``cummin``: each element against the best before it."""

    def rule(arguments: Arguments) -> list[Edge]:
        x, dim = arguments["self"], arguments["dim"]
        if not is_real(x) or not x.dim() or x.shape[dim] < 2:
            return []

        def distance() -> torch.Tensor:
            extent = x.shape[dim]
            before = (sign * x.narrow(dim, 0, extent - 1)).cummax(dim).values * sign
            first = torch.full_like(x.narrow(dim, 0, 1), math.inf)
            return torch.cat([first, (x.narrow(dim, 1, extent - 1) - before).abs()], dim)

        return [Edge((x, x), x, distance)]

    return rule


def _max_pool(spatial: int) -> Rule:
    def rule(arguments: Arguments) -> list[Edge]:
        x = arguments["self"]
        kernel = _each(arguments["kernel_size"], spatial)
        stride = _each(arguments["stride"] or kernel, spatial)
        padding, dilation = _each(arguments["padding"], spatial), _each(arguments["dilation"], spatial)
        if not is_real(x):
            return []
        return [
            Edge((x, x), x, lambda: _pooled(x, kernel, stride, padding, dilation, ceil=bool(arguments["ceil_mode"])))
        ]

    return rule


def _adaptive_max_pool(spatial: int) -> Rule:
    def rule(arguments: Arguments) -> list[Edge]:
        x, sizes = arguments["self"], arguments["output_size"]
        extents = list(x.shape[-spatial:])
        # Windows of unequal sizes are rare; they get no edge.
        if not is_real(x) or any(extent % size for extent, size in zip(extents, sizes, strict=True)):
            return []
        kernel = [extent // size for extent, size in zip(extents, sizes, strict=True)]
        return [Edge((x, x), x, lambda: _pooled(x, kernel, kernel, [0] * spatial, [1] * spatial, ceil=False))]

    return rule


def _each(value: int | Sequence[int], spatial: int) -> list[int]:
    """Return one number for each spatial dimension."""
    values = [value] if isinstance(value, int) else list(value)
    return values * spatial if len(values) == 1 else values


def _pooled(
    x: torch.Tensor, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int], *, ceil: bool
) -> torch.Tensor:
    """Return, for each window's winner, its least lead over the runner-up in any window.

    It goes through the places of a window one after another. ``topk`` over windows takes many times
    as long, since it sorts each one by itself.
    """
    spatial = len(kernel)
    extents = x.shape[-spatial:]
    leads = torch.full((*x.shape[:-spatial], math.prod(extents)), math.inf, dtype=x.dtype, device=x.device)
    if math.prod(kernel) < 2:
        return leads.view(x.shape)
    values, places = x, torch.arange(math.prod(extents), device=x.device).view(extents)
    spans = []
    for step, extent in enumerate(extents):
        reach = dilation[step] * (kernel[step] - 1) + 1
        spare = extent + 2 * padding[step] - reach
        count = -(-spare // stride[step]) + 1 if ceil else spare // stride[step] + 1
        if ceil and (count - 1) * stride[step] >= extent + padding[step]:
            count -= 1  # A window must begin inside the input or its left padding.
        after = max((count - 1) * stride[step] + reach - extent - padding[step], 0)
        values = _padded(values, step - spatial, padding[step], after, -math.inf)
        places = _padded(places, step - spatial, padding[step], after, 0)
        spans.append((count - 1) * stride[step] + 1)
    counts = [(span - 1) // step + 1 for span, step in zip(spans, stride, strict=True)]
    best = x.new_full((*x.shape[:-spatial], *counts), -math.inf)
    second, winner = best, torch.zeros((), dtype=places.dtype, device=x.device).expand(best.shape)
    for offsets in itertools.product(*map(range, kernel)):
        starts = [dilation[step] * offset for step, offset in enumerate(offsets)]
        cut: tuple[Any, ...] = (
            ...,
            *(slice(start, start + spans[step], stride[step]) for step, start in enumerate(starts)),
        )
        value, place = values[cut], places[cut]
        is_more = value > best
        second = torch.where(is_more, best, torch.maximum(second, value))
        best, winner = torch.maximum(best, value), torch.where(is_more, place, winner)
    lead, index = (best - second).flatten(-spatial), winner.flatten(-spatial)
    return leads.scatter_reduce(-1, index, lead, "amin").view(x.shape)


def _padded(x: torch.Tensor, dim: int, before: int, after: int, value: float) -> torch.Tensor:
    pad = [0, 0] * (-dim - 1) + [before, after]
    return torch.nn.functional.pad(x, pad, value=value) if before or after else x


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("relu", "leaky_relu", "_prelu_kernel", "rrelu_with_noise"), _fixed(0.0)),
    **dict.fromkeys(("abs", "sign", "sgn", "heaviside"), _fixed(0.0)),
    **dict.fromkeys(("hardswish", "hardsigmoid"), _fixed(-3.0, 3.0)),
    **dict.fromkeys(("hardshrink", "softshrink"), _shrink),
    **dict.fromkeys(("norm", "linalg_vector_norm"), _norm),
    "hardtanh": _named("min_val", "max_val"),
    "threshold": _named("threshold"),
    "elu": _elu,
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max"), _clamp),
    **dict.fromkeys(("gt", "ge", "lt", "le", "eq", "ne"), _comparison),
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin"), _comparison),
    **dict.fromkeys(("floor", "ceil", "trunc", "frac"), lambda arguments: _steps(arguments["self"], 1.0)),
    **dict.fromkeys(("fmod", "remainder", "floor_divide"), _quotient),
    "div": _division,
    "round": _round,
    "_to_copy": _conversion,
    **dict.fromkeys(
        (
            "fake_quantize_per_tensor_affine_cachemask",
            "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
            "fake_quantize_per_channel_affine_cachemask",
        ),
        _quantised,
    ),
    "frexp": _exponent,
    "bucketize": lambda arguments: _between(arguments["self"], arguments["boundaries"]),
    "searchsorted": lambda arguments: _between(arguments["self"], arguments["sorted_sequence"], arguments["sorter"]),
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d"), _sampled),
    "cudnn_grid_sampler": lambda arguments: _sampled(
        {**arguments, "input": arguments["self"], "interpolation_mode": 0, "align_corners": True}
    ),
    **dict.fromkeys(("max", "amax", "argmax"), _best(1)),
    **dict.fromkeys(("min", "amin", "argmin"), _best(-1)),
    "aminmax": _best(1, -1),
    "sort": _sort,
    "topk": _topk,
    **dict.fromkeys(("median", "nanmedian", "kthvalue"), _rank),
    "cummax": _running(1),
    "cummin": _running(-1),
    "max_pool2d_with_indices": _max_pool(2),
    "max_pool3d_with_indices": _max_pool(3),
    "adaptive_max_pool2d": _adaptive_max_pool(2),
    "adaptive_max_pool3d": _adaptive_max_pool(3),
}
