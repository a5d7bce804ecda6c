"""Tests how many builds run at a time."""

from __future__ import annotations

import os

import pytest

from harness.executors import prebuild
from harness.executors.prebuild import BUILD_BYTES, most_builders


@pytest.mark.parametrize(
    ("cores", "gpus", "gigabytes", "expected"),
    [
        (16, 1, 999, 15),
        (32, 2, 999, 26),
        (8, 2, 999, 4),
        (4, 4, 999, 2),
        (2, 0, 999, 1),
        (1, 8, 999, 1),
        (32, 2, 12, 4),
    ],
)
def test_lanes_on_several_gpus_have_cores_to_themselves(
    monkeypatch: pytest.MonkeyPatch, cores: int, gpus: int, gigabytes: int, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    monkeypatch.setattr(prebuild, "available_memory", lambda: gigabytes << 30)
    assert BUILD_BYTES == 3 << 30
    assert most_builders(gpus) == expected
