"""Tests peak rates on the GPU at hand: they are ordered as hardware orders them."""

from __future__ import annotations

import pytest
import torch

from harness.timing.ceilings import measure


@pytest.mark.gpu
def test_the_rates_of_a_gpu_stand_in_order() -> None:
    device = torch.device("cuda", 0)
    torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)  # whose library keeps a workspace from now on
    held, flag = torch.cuda.memory_allocated(device), torch.backends.cuda.matmul.fp32_precision
    found = measure(device)
    assert found.device == torch.cuda.get_device_name(device)
    for one in (found.read, found.write):
        assert found.copy < 2 * one
        assert one < 2 * found.copy
    assert found.fp16 is not None
    if torch.cuda.get_device_capability(device) >= (8, 0):
        assert found.tf32 is not None
        assert found.bf16 is not None
        assert found.fp32 < found.tf32 < found.fp16
        assert found.fp16 / 2 < found.bf16 < found.fp16 * 2
    assert torch.cuda.memory_allocated(device) == held
    assert torch.backends.cuda.matmul.fp32_precision == flag
