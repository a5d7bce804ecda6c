"""Changes torch's settings for the length of an evaluation of the reference."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

ResultT = TypeVar("ResultT")


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


@contextlib.contextmanager
def without_cudnn() -> Iterator[None]:
    """Switch cuDNN off.

    ``torch.backends.cudnn.flags`` would set its other flags, too, and fails where a problem has set
    ``fp32_precision`` of convolutions alone.
    """
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before


class ExactConvolutions:
    """Has torch convolve in float64 by matrix products, until memory is too short for them.

    cuDNN takes up to eleven times as long on a GPU with float64 tensor cores. The products need
    memory for one sample's input at all taps.

    Args:
        device: The device of the reference; nothing changes on any but a GPU.
    """

    def __init__(self, device: torch.device):
        self._by_products = device.type == "cuda"

    def call(self, evaluate: Callable[[], ResultT], can_repeat: bool = True) -> ResultT:
        """Evaluate something, a second time by cuDNN if its products do not fit.

        Args:
            evaluate: What to evaluate.
            can_repeat: Whether a second time is allowed now; if not, the next call is by cuDNN.

        Raises:
            torch.OutOfMemoryError: It does not fit.
        """
        if self._by_products:
            try:
                with without_cudnn():
                    return evaluate()
            except torch.OutOfMemoryError:
                self._by_products = False
                if not can_repeat:
                    raise
            torch.cuda.empty_cache()
        return evaluate()
