"""Tests the bound that windows of many calls put on a claimed time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.timing.certificate import Windows, certificate


def series(calls: int, constant: float, call: float) -> Windows:
    """Windows of calls that all take the same."""
    short, long = constant + calls * call, constant + 2 * calls * call
    return Windows(calls, (short, short, short), (long, long, long))


@pytest.mark.parametrize(
    ("claim", "call", "noise", "accepted"),
    [
        (5.0, 5.0, 0.0, True),
        (5.0, 5.1, 0.0, True),
        (4.0, 5.0, 0.0, False),
        (0.5, 5.0, 0.0, False),
        (0.5, 5.0, 50.0, False),  # noise of the trusted sides, which a candidate may make, excuses little
        (0.01, 0.05, 0.0, False),  # below the resolution, but no speedup of a hundred
        (0.04, 0.05, 0.0, True),
    ],
)
def test_a_claim_is_bounded_by_the_windows(claim: float, call: float, noise: float, accepted: bool) -> None:
    calls, overhead = 4, 0.5
    candidate, eager = series(calls, 1.0, call + overhead), series(calls, 1.0, 9.0 + overhead)
    storing = series(calls, 1.0, overhead)
    eager = replace(eager, long_ms=(*eager.long_ms[:1], *(one + noise for one in eager.long_ms[1:])))
    proof = certificate(candidate, eager, storing)
    assert proof.candidate_ms == pytest.approx(call)
    assert proof.at_least_ms == pytest.approx(call)
    assert proof.accepts(claim, 9.0) is accepted


def test_dawdling_in_short_windows_flattens_the_slope_and_not_the_bound() -> None:
    honest, storing = series(2, 1.0, 5.0), series(2, 1.0, 0.0)
    dawdling = replace(honest, short_ms=honest.long_ms)
    proof = certificate(dawdling, honest, storing)
    assert proof.candidate_ms == pytest.approx(0.0)
    assert proof.at_least_ms == pytest.approx(5.0)
    assert not proof.accepts(1.0, 5.0)
