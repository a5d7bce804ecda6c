"""Tests whether the time of traced kernels agrees with the latency, on invented times of a GPU."""

from __future__ import annotations

import pytest

from harness.judge.evidence.ownership import disagreement
from harness.wire.replies import Launched, Traced


def traced(*kernels_ms: float) -> Traced:
    """The report of a forward with these kernels, one launch each."""
    kernels = tuple(Launched(f"kernel_{at}", 1, True, device_ms) for at, device_ms in enumerate(kernels_ms))
    return Traced(True, (), (), kernels, {}, None, ())


@pytest.mark.parametrize(
    ("kernels_ms", "latency_ms"),
    [
        ([9.0], 9.1),
        ([0.02] * 4, 0.65),  # an honest kernel of group_norm on a tiny case: the host takes the time
        ([0.002] * 300, 20.0),  # many small launches
        ([0.3], 0.01),
        ([9.0], None),
    ],
)
def test_calls_that_wait_for_the_host_agree(kernels_ms: list[float], latency_ms: float | None) -> None:
    assert disagreement(traced(*kernels_ms), {"forward": latency_ms}) == ""


@pytest.mark.parametrize(("kernels_ms", "latency_ms"), [([0.02], 3.0), ([3.0], 9.0), ([4.0], 2.0), ([0.6], 0.1)])
def test_other_work_than_the_timed_calls_is_told(kernels_ms: list[float], latency_ms: float) -> None:
    assert "traced forward differs" in disagreement(traced(*kernels_ms), {"forward": latency_ms})
