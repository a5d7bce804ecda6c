"""Tests the speed of light of problems whose floors are known, and the note on a latency below it."""

from __future__ import annotations

import json

import pytest

from harness.records.record import PrecisionClass
from harness.timing.ceilings import Ceilings
from harness.timing.floor import MinimalWork, SpeedOfLight, flags, floor_fields, floor_of, share
from harness.timing.statistics import Interval, measured

H200 = Ceilings(
    copy=4.28e12,
    read=4.35e12,
    write=4.68e12,
    fp32=51e12,
    tf32=340e12,
    fp16=698e12,
    bf16=740e12,
    device="NVIDIA H200",
    software="torch 2.11.0, CUDA 13.0",
    measured_at="2026-11-21T10:00:00+00:00",
)
GROUP_NORM = MinimalWork(
    {"forward": 15_032_385_536, "forward_backward": 37_580_963_840}, {"forward": 0, "forward_backward": 0}
)
LINEAR = MinimalWork({"forward": 336_000_000}, {"forward": 2 * 1024 * 8192 * 8192})
CONVOLUTION = MinimalWork({"forward": 4_330_000_000}, {"forward": 618_500_000_000})


@pytest.mark.parametrize(
    ("work", "precision_class", "direction", "floor_ms", "bound"),
    [
        (GROUP_NORM, PrecisionClass.FP32, "forward", 3.51, "bytes"),
        (GROUP_NORM, PrecisionClass.FP32, "forward_backward", 8.78, "bytes"),
        (LINEAR, PrecisionClass.FP32, "forward", 0.591, "flops"),  # three float16 products
        (LINEAR, PrecisionClass.TEN_BIT, "forward", 0.197, "flops"),
        (LINEAR, PrecisionClass.SEVEN_BIT, "forward", 0.186, "flops"),
        (CONVOLUTION, PrecisionClass.FP32, "forward", 2.658, "flops"),
        (CONVOLUTION, PrecisionClass.SEVEN_BIT, "forward", 1.012, "bytes"),
    ],
)
def test_the_floor_is_the_longer_of_moving_and_computing(
    work: MinimalWork, precision_class: PrecisionClass, direction: str, floor_ms: float, bound: str
) -> None:
    floor = floor_of(work, H200, precision_class)[direction]
    assert floor.floor_ms == pytest.approx(floor_ms, rel=2e-3)
    assert floor.bound == bound
    assert floor.intensity == floor.flops / floor.bytes
    assert (floor.bytes, floor.flops) == (work.bytes[direction], work.flops[direction])


def test_what_moves_nothing_has_no_intensity_and_takes_no_time() -> None:
    floor = floor_of(MinimalWork({"forward": 0}, {"forward": 0}), H200, PrecisionClass.FP32)["forward"]
    assert floor == SpeedOfLight(0, 0, 0.0, "bytes", None)


def test_a_share_is_the_floor_over_the_latency_and_its_ends_change_places() -> None:
    found = share(SpeedOfLight(1, 0, 3.0, "bytes", 0.0), Interval(4.0, 3.75, 5.0))
    assert found == (0.75, 0.6, 0.8)


def test_the_fields_of_a_record_survive_json_and_leave_out_what_was_not_measured() -> None:
    samples = [5.4, 5.5, 5.45, 5.48, 5.41]
    fields = floor_fields(GROUP_NORM, H200, PrecisionClass.FP32, {"forward": samples})
    assert json.loads(json.dumps(fields, allow_nan=False)) == fields
    assert set(fields) == {"forward", "forward_backward"}
    assert set(fields["forward"]) == {"bytes", "flops", "floor_ms", "bound", "intensity", "share"}
    assert set(fields["forward_backward"]) == set(fields["forward"]) - {"share"}
    floor_ms, latency_ms = fields["forward"]["floor_ms"], measured(samples)
    assert fields["forward"]["share"] == [floor_ms / 5.45, floor_ms / latency_ms.high, floor_ms / latency_ms.low]
    assert floor_fields(LINEAR, H200, PrecisionClass.FP32, {"forward_backward": samples}).keys() == {"forward"}


def test_only_a_claim_below_the_floor_is_flagged() -> None:
    samples = {"forward": [3.0, 3.0, 3.0], "forward_backward": [8.9, 8.9, 8.9]}
    (flag,) = flags(floor_fields(GROUP_NORM, H200, PrecisionClass.FP32, samples))
    assert flag.startswith("forward: 1.17 of the speed of light (the floor is 3.51 ms, bound by bytes)")
    assert flags(floor_fields(GROUP_NORM, H200, PrecisionClass.FP32, {})) == []
