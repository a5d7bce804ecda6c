"""Keeps a reference from a GPU's device assertions, each of which would end the judge's process."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from harness.aten.dispatching import DispatchMode
from harness.errors import ProblemError

#: Operators whose CUDA kernels assert what their values are: indices within bounds, probabilities within [0, 1] and
#: so on. In-place forms have a further ``_``. The list follows ``CUDA_KERNEL_ASSERT`` in ATen's sources.
ASSERTING = frozenset(
    (
        *("index", "_unsafe_index", "index_put", "_unsafe_index_put", "_index_put_impl"),
        *("index_select", "index_add", "index_copy", "index_fill", "index_reduce", "take", "put"),
        *("gather", "scatter", "scatter_add", "scatter_reduce", "masked_scatter", "segment_reduce"),
        *("embedding", "_embedding_bag", "_embedding_bag_forward_only"),
        *("nll_loss_forward", "nll_loss2d_forward", "multi_margin_loss", "multilabel_margin_loss_forward"),
        *("binary_cross_entropy", "multinomial", "bernoulli", "binomial", "poisson", "repeat_interleave"),
        *("max_unpool2d", "max_unpool3d", "fractional_max_pool2d", "fractional_max_pool3d"),
        *("_ctc_loss", "_assert_async"),
    )
)
#: The most bytes that one run copies to the CPU.
MOST_BYTES = 1 << 30


class TriedOnCpu(DispatchMode):  # type: ignore[no-untyped-call]
    """Runs such operators on the CPU before a GPU, within a ``with`` block; there they raise an error of torch's.

    Args:
        is_own: Whether the values are the problem's own, which are trusted where the CPU cannot try them: it lacks
            a kernel for their type, or more than ``MOST_BYTES`` would be copied.

    Raises:
        ProblemError: The CPU cannot try other values.
    """

    def __init__(self, is_own: bool = False) -> None:
        super().__init__()
        self._is_own = is_own
        self._bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2].removesuffix("_")
        leaves = tree_leaves((args, kwargs)) if name in ASSERTING else ()
        given = [one for one in leaves if isinstance(one, torch.Tensor)]
        if any(one.is_cuda for one in given):
            self._bytes += sum(one.nbytes for one in given)
            untried = "its tensors are too large"
            if self._bytes <= MOST_BYTES:
                untried = ""
                try:
                    with torch.random.fork_rng(devices=[]):
                        func(*tree_map(_on_cpu, args), **tree_map(_on_cpu, kwargs))
                except NotImplementedError as error:
                    untried = f"there it has no kernel for them ({error})"
            if untried and not self._is_own:
                raise ProblemError(
                    f"{name} could end the judge by a device assertion, and the CPU cannot try it: {untried}"
                )
        return func(*args, **kwargs)


def _on_cpu(value: Any) -> Any:
    """Return a copy on the CPU; a CUDA generator or device becomes the CPU's."""
    if isinstance(value, torch.Tensor):
        return value.to("cpu", copy=True)
    if isinstance(value, torch.Generator):
        return torch.Generator()
    return torch.device("cpu") if isinstance(value, torch.device) else value
