"""Tests how ``--device all`` finds the GPUs."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from harness.device.devices import several
from harness.errors import DeviceError


@pytest.mark.parametrize(("fails", "count"), [(0, 3), (100, 0)])
def test_all_gpus_are_counted_by_the_driver(monkeypatch: pytest.MonkeyPatch, fails: int, count: int) -> None:
    """Not by torch, whose import takes seconds."""

    class Driver:
        def cuInit(self, flags: int) -> int:
            return fails

        def cuDeviceGetCount(self, place: Any) -> int:
            place._obj.value = 3
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda name: {"libcuda.so.1": Driver()}[name])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: pytest.fail("torch was asked"))
    if count:
        assert several("all", 1) == ["cuda:0", "cuda:1", "cuda:2"]
    else:
        with pytest.raises(DeviceError, match="torch finds no GPU"):
            several("all", 1)
