"""Computes the speed of light: the least time that a call's data movement and computation take.

This is the roofline model (Williams, Waterman and Patterson, 2009, "Roofline: An Insightful Visual
Performance Model for Multicore Architectures"), with measured ceilings. Values are in bytes, flops
and milliseconds, without rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from harness.records.record import PrecisionClass
from harness.timing.statistics import Interval, measured

if TYPE_CHECKING:
    from harness.timing.ceilings import Ceilings


@dataclass(frozen=True)
class MinimalWork:
    """The unavoidable work of a problem in ``forward`` and ``forward_backward``.

    ``judge.timing.minimal_work`` computes it.

    Attributes:
        bytes: Bytes to read and to write, by direction. A problem without gradients has no
            ``forward_backward``.
        flops: Floating-point operations of its matrix products, by direction.
    """

    bytes: dict[str, int]
    flops: dict[str, int]


@dataclass(frozen=True)
class SpeedOfLight:
    """The speed of light of one direction on one device.

    Attributes:
        bytes: Bytes that a call must move.
        flops: Floating-point operations of matrix products.
        floor_ms: The least time for both, if they overlap completely.
        bound: The one of the two that takes this time.
        intensity: Flops for each byte; None if a call moves nothing.
    """

    bytes: int
    flops: int
    floor_ms: float
    bound: Literal["bytes", "flops"]
    intensity: float | None


def floor_of(work: MinimalWork, ceilings: Ceilings, precision_class: PrecisionClass) -> dict[str, SpeedOfLight]:
    """Computes ``max(bytes / copy, flops / rate)`` for each direction.

    Args:
        work: Work of the problem.
        ceilings: Ceilings of the device.
        precision_class: Class that the problem allows, which decides the rate of matrix products.

    Returns:
        The floor by direction.
    """
    rate = ceilings.rate(precision_class)
    floors = {}
    for direction, moved in work.bytes.items():
        flops = work.flops[direction]
        moving_ms, computing_ms = moved / ceilings.copy * 1e3, flops / rate * 1e3
        bound: Literal["bytes", "flops"] = "flops" if computing_ms > moving_ms else "bytes"
        intensity = flops / moved if moved else None
        floors[direction] = SpeedOfLight(moved, flops, max(moving_ms, computing_ms), bound, intensity)
    return floors


def share(floor: SpeedOfLight, latency_ms: Interval) -> Interval:
    """Returns the share of the speed of light that a latency reaches, ``floor / latency``.

    Args:
        floor: The floor.
        latency_ms: Median of the latencies with its interval, from ``measured``; positive.
    """
    return Interval(*(floor.floor_ms / one for one in (latency_ms.ratio, latency_ms.high, latency_ms.low)))


def floor_fields(
    work: MinimalWork,
    ceilings: Ceilings,
    precision_class: PrecisionClass,
    samples_by_direction: Mapping[str, Sequence[float]],
) -> dict[str, Any]:
    """Returns the value of ``EvaluationRecord.floor``, ready for JSON.

    Args:
        work: Work of the problem.
        ceilings: Ceilings of the device.
        precision_class: Class that the problem allows.
        samples_by_direction: Latencies of the candidate in milliseconds, at least two each. It
            lacks directions that were not measured or whose speed does not count.

    Returns:
        By direction ``bytes``, ``flops``, ``floor_ms``, ``bound``, ``intensity``, and with
        latencies also ``share``: [share, low, high].

    Raises:
        ValueError: A direction has a single latency.
    """
    fields: dict[str, Any] = {}
    for direction, floor in floor_of(work, ceilings, precision_class).items():
        fields[direction] = asdict(floor)
        if samples := samples_by_direction.get(direction):
            fields[direction]["share"] = list(share(floor, measured(samples)))
    return fields


def flags(fields: Mapping[str, Any]) -> list[str]:
    """Returns a warning for each direction that claims to be faster than its floor.

    Args:
        fields: Result of ``floor_fields``.
    """
    return [
        f"{direction}: {floor['share'][0]:.2f} of the speed of light (the floor is {floor['floor_ms']:.3g} "
        f"ms, bound by {floor['bound']}): check whether the floor counts work that a candidate may leave "
        "out, or the candidate leaves out work that it must do, or the GPU was busy when its peak rates "
        "were measured (`doctor --calibrate`)"
        for direction, floor in fields.items()
        if "share" in floor and floor["share"][0] > 1
    ]
