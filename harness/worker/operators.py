"""Which of torch's heavy operators a call runs: evidence of who does the work, and no proof."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from harness.dispatching import DispatchMode

#: Operators whose work is what a kernel is written to replace, by their names in torch's schema: those that others are
#: made of (``linear`` and ``matmul`` come down to the first ones).
HEAVY = frozenset(
    f"aten::{name}"
    for name in (
        *("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "addr", "_scaled_mm", "_grouped_mm"),
        *("convolution", "convolution_backward", "_convolution", "convolution_overrideable"),
        *("native_group_norm", "native_group_norm_backward", "native_layer_norm", "native_layer_norm_backward"),
        *("native_batch_norm", "native_batch_norm_backward", "_native_batch_norm_legit", "cudnn_batch_norm"),
        *("cudnn_batch_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward"),
        *("_softmax", "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data"),
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward"),
        *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward"),
        *("_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward"),
        *("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_cudnn_attention_backward"),
        *("_cudnn_rnn", "_cudnn_rnn_backward", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "mkldnn_rnn_layer"),
        *("sort", "topk", "cumsum", "cumprod", "_cdist_forward", "_cdist_backward", "_embedding_bag"),
        *("max_pool2d_with_indices", "max_pool2d_with_indices_backward", "max_pool3d_with_indices"),
        *("avg_pool2d", "avg_pool2d_backward", "avg_pool3d", "avg_pool3d_backward"),
        *("_fft_c2c", "_fft_r2c", "_fft_c2r", "_linalg_svd", "_linalg_eigh", "linalg_inv_ex", "_linalg_solve_ex"),
    )
)


class HeavyOperators(DispatchMode):  # type: ignore[no-untyped-call]
    """Counts the heavy operators under it, those of the candidate's C++ and of autograd's threads among them.

    Attributes:
        counts: How often each ran, by its name without ``aten::``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Count the operator and run it."""
        name = func._schema.name
        if name in HEAVY:
            short = name.removeprefix("aten::")
            self.counts[short] = self.counts.get(short, 0) + 1
        return func(*args, **(kwargs or {}))


def counted(call: Callable[[], Any], counts: dict[str, int]) -> Callable[[], Any]:
    """A call that adds the heavy operators which it runs to ``counts``.

    What fails while it is watched runs again unwatched, and is not counted: watching must not be what breaks it.
    """

    def watched() -> Any:
        mode = HeavyOperators()
        try:
            with mode:
                result = call()
        except torch.OutOfMemoryError:
            raise
        except Exception:  # the candidate's boundary: what it raises by itself, it raises again
            return call()
        for name, count in mode.counts.items():
            counts[name] = counts.get(name, 0) + count
        return result

    return watched
