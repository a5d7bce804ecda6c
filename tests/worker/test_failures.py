"""Tests how a candidate's exception is told from a lack of memory."""

from __future__ import annotations

import pytest
import torch

from harness.worker.failures import kind_of

#: What torch's stable C++ interface says of an allocation that failed, among others.
STABLE = 'torch_call_dispatcher( "aten::empty_like", "", stack.data(), TORCH_ABI_VERSION) API call failed at ops.h'


@pytest.mark.parametrize(
    ("message", "out_of_memory", "kind"),
    [(STABLE, 1, "memory"), (STABLE, 0, "runtime"), ("x must be (batch, in_features)", 1, "runtime")],
)
def test_the_allocator_s_count_tells_why_a_call_failed(
    message: str, out_of_memory: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: {"num_ooms": out_of_memory})
    assert kind_of(RuntimeError(message), "runtime") == kind
