"""Describes a record's speed for ``show``: baselines, certificate, floor, device state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.records.record import EvaluationRecord
from harness.system.text import one_line
from harness.timing.scores import interval, mapping, number
from harness.timing.statistics import Interval

GIB = 2.0**30


def speed_lines(record: EvaluationRecord) -> Iterator[str]:
    """Yields lines without indentation, or none if nothing was measured."""
    for direction, sides in record.samples.items():
        yield from _times(direction, sides)
        yield from _speedups(record, direction)
        yield from _certificate(record, direction)
        yield from _light(direction, mapping(record.floor.get(direction)))
        if peaks := record.peak_bytes.get(direction):
            words = ", ".join(f"{side} {size / GIB:.4g} GiB" for side, size in peaks.items())
            yield f"{direction} peak memory: {words} (without inputs and cotangents)"
        for mode, told in mapping(record.modes.get(direction)).items():
            yield _mode(direction, mode, mapping(told))
    for name, told in record.baselines.items():
        yield from _baseline(name, mapping(told))
    yield from _device(record.device_state)


def _times(direction: str, sides: dict[str, Any]) -> Iterator[str]:
    for name, side in sides.items():
        window = f", judge's window {side['window_ms']:.4g} ms" if "window_ms" in side else ""
        yield one_line(
            f"{direction} {name}: median {side['median_ms']:.4g} ms, quartiles {side['low_ms']:.4g} to "
            f"{side['high_ms']:.4g}, {len(side['samples_ms'])} samples{window}"
        )


def _speedups(record: EvaluationRecord, direction: str) -> Iterator[str]:
    found = {
        name: interval(mapping(mapping(told).get("speedup")).get(direction)) for name, told in record.baselines.items()
    }
    ratio = (record.speedup or {}).get(direction)
    if ratio is not None and found.get("eager") is None:  # a record from before there were other baselines
        low, high = record.speedup_interval.get(direction, (ratio, ratio))
        found["eager"] = Interval(ratio, low, high)
    for name, one in found.items():
        if one is not None:
            words = f"[{one.low:.3f}, {one.high:.3f}], {one.verdict}" if one.low < one.high else ""
            yield f"{direction} speedup over {name}: {one.ratio:.3f} {words} (median of paired ratios, 95 % interval)"


def _certificate(record: EvaluationRecord, direction: str) -> Iterator[str]:
    proof = record.certified.get(direction)
    if proof is None:
        yield f"{direction}: not certified by the judge's clock"
        return
    calls = proof["calls"]
    yield (
        f"{direction} by the judge's clock: {proof['candidate_ms']:.4g} ms a call, at least "
        f"{proof['at_least_ms']:.4g}; eager {proof['eager_ms']:.4g} ({calls} and {2 * calls} calls in a row, "
        f"resolution {proof['resolution_ms']:.2g} ms)"
    )


def _light(direction: str, floor: Any) -> Iterator[str]:
    if (floor_ms := number(floor.get("floor_ms"))) is None:
        return
    reached = interval(floor.get("share"))
    share = f", {reached.ratio:.1%} of it reached" if reached is not None else ""
    moved, flops = number(floor.get("bytes")) or 0.0, number(floor.get("flops")) or 0.0
    yield (
        f"{direction} speed of light: {floor_ms:.4g} ms for {moved / 1e9:.4g} GB and {flops / 1e9:.4g} GFLOP, bound by "
        f"{one_line(str(floor.get('bound')))}{share}"
    )


def _mode(direction: str, mode: str, told: Any) -> str:
    if failure := told.get("failure"):
        return one_line(f"{direction} {mode}: not measured: {failure}")
    names = {"candidate_ms": "candidate", "eager_ms": "eager", "overhead_ms": "an empty launch"}
    words = [
        f"{name} {found * 1e3:.4g} us" for key, name in names.items() if (found := number(told.get(key))) is not None
    ]
    return one_line(f"{direction} {mode}: {', '.join(words)}")


def _baseline(name: str, told: Any) -> Iterator[str]:
    if failure := told.get("failure"):
        yield one_line(f"{name} could not be timed: {failure}")
    if note := told.get("note"):
        yield one_line(f"{name}: {note}")
    if (seconds := number(told.get("prepare_s"))) is not None:
        yield f"{name}: compiling took {seconds:.1f} s"
    if kept := told.get("kept_from"):
        times = {"forward": told.get("forward_ms"), "forward_backward": told.get("forward_backward_ms")}
        words = [f"{key} {found:.4g} ms" for key, value in times.items() if (found := number(value)) is not None]
        yield one_line(f"{name}: {', '.join(words)} in record {kept}, not timed in pairs with this one")


def _device(state: Any) -> Iterator[str]:
    during = mapping(state.get("during"))
    clocks = mapping(during.get("sm_mhz"))
    words = []
    if (low := number(clocks.get("min"))) is not None and (high := number(clocks.get("max"))) is not None:
        words.append(f"SM clock {low:.0f} to {high:.0f} MHz")
    if (power := number(during.get("max_power_w"))) is not None:
        words.append(f"at most {power:.0f} W")
    if (heat := number(during.get("max_temperature_c"))) is not None:
        words.append(f"at most {heat:.0f} degrees Celsius")
    if words:
        yield f"device while timing: {', '.join(words)}"
