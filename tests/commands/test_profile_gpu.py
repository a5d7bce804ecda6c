"""Tests ``profile`` on a GPU: times and shares, copies with their bytes, and hardware counters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.device.device_state import DeviceWatch, clock_state
from harness.errors import ToolchainError
from harness.profiling.ncu import find_ncu

pytestmark = pytest.mark.gpu
Harness = Callable[..., Any]
PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(1024, 256)]


def get_init_inputs():
    return []
"""
#: A copy by the driver, then torch's own kernels.
COPYING = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone().mul(2)
"""


def test_kernels_have_times_and_shares(harness: Harness) -> None:
    ran = harness("profile", "group_norm/fused", "--case", "odd", "--device", "cuda:0", "--json")
    (row,) = ran.rows
    assert (ran.code, row["status"]) == (0, "PASSED"), row["message"]
    for found in row["directions"].values():
        assert any(use["whose"] == "own" for use in found)
        assert all(use["device_ms"] > 0 for use in found)
        assert sum(use["share"] for use in found) == pytest.approx(1.0)
    table = harness("profile", "group_norm/fused", "--case", "odd", "--device", "cuda:0").out
    assert "100.0 %" in table


def test_copies_are_listed_with_what_they_moved(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "answer.py").write_text(COPYING)
    options = (tmp_path / "answer.py", "--problem", tmp_path / "problem.py", "--device", "cuda:0", "--json")
    (row,) = harness("profile", *options).rows
    (copy,) = [use for use in row["directions"]["forward"] if use["whose"] == "driver"]
    assert copy["name"].startswith("Memcpy DtoD")
    assert (copy["launches"], copy["bytes"]) == (1, 1024 * 256 * 4)
    (judged,) = harness("evaluate", *options).rows
    assert all(not use["name"].startswith("Mem") for use in judged["kernels"]["forward"])
    assert judged["copies"]["forward"][0]["bytes"] == 1024 * 256 * 4
    assert [finding["kind"] for finding in judged["findings"]] == ["no-own-kernel"]


def test_the_gpus_counters_are_read(harness: Harness) -> None:
    try:
        find_ncu()
    except ToolchainError as error:
        pytest.skip(str(error))
    ran = harness("profile", "group_norm/fused", "--case", "odd", "--device", "cuda:0", "--ncu", "--json")
    if ran.code == 3 and "ERR_NVGPUCTRPERM" in ran.err:
        pytest.skip(ran.err)
    assert ran.code == 0, ran.err
    (row,) = ran.rows
    own = {use["name"]: use for use in row["kernels"] if use["own"]}
    assert {name.rpartition("::")[2].partition("<")[0] for name in own} == {
        *("normalise_groups", "group_gradients", "affine_gradients"),
    }
    forward = next(use for name, use in own.items() if "normalise_groups" in name)
    assert forward["launches"] == 2  # one without gradients, one before its backward
    for use in own.values():
        assert use["duration_ms"] > 0
        assert use["registers"] > 0
        assert 0 <= use["dram_percent"] <= 100
        assert 0 < use["occupancy_percent"] <= 100
        assert use["dram_read_bytes"] >= 0
        assert use["stalls"]


def test_the_state_of_the_device_is_read() -> None:
    watch = DeviceWatch.open(0)
    if watch is None:
        pytest.skip(DeviceWatch.why_not(0))
    work = torch.randn(4096, 4096, device="cuda:0")
    for _ in range(20):
        work = torch.nn.functional.normalize(work @ work)
        watch.sample()
    torch.cuda.synchronize()
    summary = watch.summary()
    assert summary["before"]["max_sm_mhz"] > 0
    assert summary["during"]["readings"] >= 1
    assert clock_state(summary).startswith("sm")
    assert summary["after"]["utilisation_percent"] is None or 0 <= summary["after"]["utilisation_percent"] <= 100
