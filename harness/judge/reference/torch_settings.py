"""Changes torch's settings for the length of an evaluation of the reference."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype | None) -> Iterator[None]:
    """Set the dtype of tensors that a forward creates without naming one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def other_thread_count() -> Iterator[None]:
    """Run torch's CPU kernels with another number of threads, so that sums split differently."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads > 1 else 2)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
