"""Reads and restores torch's settings and functions, whose changes outlive a call."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext


class Flag(NamedTuple):
    """A setting of torch whose change outlives the call that makes it."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


def _default_device() -> Any:
    """Returns the device that the program has set or entered (``with torch.device(...)``); None for none.

    ``torch.get_default_device`` makes a tensor to learn the index of ``cuda``, and fails without a GPU.
    """
    modes = [one for one in _get_current_function_mode_stack() if isinstance(one, DeviceContext)]  # type: ignore[no-untyped-call]
    return modes[-1].device if modes else None


def _attribute(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], object]]:
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)


_MATMUL, _CUDNN = torch.backends.cuda.matmul, torch.backends.cudnn
_CONVOLUTION = _CUDNN.conv  # type: ignore[attr-defined]
FLAGS = (
    # torch has two interfaces. The newer one always answers, so it reads; the older one writes.
    Flag(
        "torch.backends.cuda.matmul.allow_tf32",
        lambda: _MATMUL.fp32_precision == "tf32",
        lambda value: setattr(_MATMUL, "allow_tf32", value),
    ),
    Flag(
        "torch.backends.cudnn.allow_tf32",
        lambda: _CONVOLUTION.fp32_precision == "tf32",
        lambda value: setattr(_CUDNN, "allow_tf32", value),
    ),
    Flag(
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
        *_attribute(_MATMUL, "allow_fp16_reduced_precision_reduction"),
    ),
    Flag(
        "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
        *_attribute(_MATMUL, "allow_bf16_reduced_precision_reduction"),
    ),
    Flag("torch.backends.cudnn.enabled", *_attribute(_CUDNN, "enabled")),
    Flag("torch.backends.cudnn.benchmark", *_attribute(_CUDNN, "benchmark")),
    Flag("torch.backends.cudnn.deterministic", *_attribute(_CUDNN, "deterministic")),
    Flag("deterministic algorithms", torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    Flag("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Flag("default device", _default_device, torch.set_default_device),
    Flag("gradients", torch.is_grad_enabled, torch.set_grad_enabled),
    Flag(
        "autocast on CUDA",
        lambda: torch.is_autocast_enabled("cuda"),
        lambda value: torch.set_autocast_enabled("cuda", value),
    ),
    Flag(
        "autocast on the CPU",
        lambda: torch.is_autocast_enabled("cpu"),
        lambda value: torch.set_autocast_enabled("cpu", value),
    ),
    Flag("threads of an operator", torch.get_num_threads, torch.set_num_threads),
)

#: The kinds of products that may run in TF32, and the flags that allow it.
MATMUL, CONVOLUTION = "matmul", "convolution"
_TF32_FLAGS = {MATMUL: FLAGS[0], CONVOLUTION: FLAGS[1]}


def tf32_allowed() -> frozenset[str]:
    """Returns the kinds of products for which torch's flags allow TF32."""
    return frozenset(kind for kind, flag in _TF32_FLAGS.items() if flag.read())


def set_tf32(choice: str) -> None:
    """Allows or forbids TF32 for all products.

    Args:
        choice: ``allow`` or ``forbid``; empty to leave torch's flags.
    """
    for flag in _TF32_FLAGS.values() if choice else ():
        flag.write(choice == "allow")


#: Owners of the functions and methods that a problem may replace.
_OWNERS = (torch, torch.nn.functional, torch.nn.init, torch.autograd, torch.Tensor, torch.nn.Module)


@contextlib.contextmanager
def kept_state() -> Iterator[None]:
    """Restores torch's settings, functions and methods at the end of the block.

    Additions stay, because torch itself adds modules when they are first used.
    """
    flags = [(flag, flag.read()) for flag in FLAGS]
    modules = [one for one in vars(torch.nn).values() if isinstance(one, type)]
    before = [(owner, dict(vars(owner))) for owner in (*_OWNERS, *modules)]
    try:
        yield
    finally:
        for flag, value in flags:
            if flag.read() != value:
                flag.write(value)
        for owner, attributes in before:
            now = vars(owner)
            for name, value in attributes.items():
                if now.get(name) is not value and isinstance(value, types.FunctionType | types.BuiltinFunctionType):
                    setattr(owner, name, value)
