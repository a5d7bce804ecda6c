"""The exchange arena: one block of shared memory that holds every tensor that crosses, and nothing else.

On the CPU it is an anonymous shared file that the judge makes and both sides map; on a GPU it is shared device memory
(``cuda_memory``). Regions are separated by guard bands, which the judge fills and verifies.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
import tempfile
from collections.abc import Sequence

import torch

from harness.wire.messages import Region

ALIGNMENT = 256
GUARD_BYTES = 4096
GUARD_BYTE = 0xFF  # reads as NaN in every floating format


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str) -> torch.dtype:
    """``torch.float32`` for ``float32``.

    Raises:
        ValueError: torch has no such dtype.
    """
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"no dtype named {name!r}")
    return dtype


def region_bytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes of a dense tensor."""
    count = 1
    for extent in shape:
        count *= extent
    return count * dtype_named(dtype).itemsize


def order_of(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """In which order a tensor's dimensions lie in memory (see ``Region``); empty for row-major.

    Returns:
        None where it has gaps or elements that share memory (a slice, an expanded tensor): no order is all there is.
    """
    if tensor.is_contiguous():
        return ()
    strides, expected = tensor.stride(), 1
    order = sorted(range(tensor.dim()), key=lambda dim: (-strides[dim], dim))
    for dim in reversed(order):
        if tensor.shape[dim] == 1:
            continue
        if strides[dim] != expected:
            return None
        expected *= tensor.shape[dim]
    return tuple(order)


class Layout:
    """Hands out regions one after another, a guard band before, between and after them."""

    def __init__(self) -> None:
        self._end = GUARD_BYTES
        self.regions: list[Region] = []

    def add(self, shape: Sequence[int], dtype: torch.dtype, order: tuple[int, ...] = ()) -> Region:
        """A new region for a dense tensor of this shape and dtype, its dimensions in an order (see ``Region``)."""
        region = Region(self._end, tuple(shape), dtype_name(dtype), order)
        end = self._end + region_bytes(region.shape, region.dtype)
        self._end = -(-end // ALIGNMENT) * ALIGNMENT + GUARD_BYTES
        self.regions.append(region)
        return region

    @property
    def total_bytes(self) -> int:
        """Size of the arena that holds all regions handed out so far."""
        return self._end

    def guards(self) -> list[tuple[int, int]]:
        """(first byte, one past the last) of every gap between regions."""
        gaps, start = [], 0
        for region in self.regions:
            gaps.append((start, region.offset))
            start = region.offset + region_bytes(region.shape, region.dtype)
        gaps.append((start, self._end))
        return gaps


def create_shared_file(size: int) -> int:
    """Creates an anonymous file of ``size`` bytes; the caller closes the descriptor.

    On Linux the size is sealed: whoever truncated the file would end every process that has it mapped by ``SIGBUS``.
    """
    if sys.platform != "linux":
        descriptor, path = tempfile.mkstemp(prefix="harness-arena-")
        os.unlink(path)  # noqa: PTH108 - the path is only a way to a descriptor
        os.ftruncate(descriptor, size)
        return descriptor
    descriptor = os.memfd_create("harness-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor


def map_file(descriptor: int, size: int) -> torch.Tensor:
    """A shared file's bytes as a uint8 tensor of shape (size,); the mapping lives as long as the tensor."""
    return torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)


class Arena:
    """A mapping of the shared memory, seen as tensors.

    Args:
        memory: All of it, uint8 of shape (bytes,), on the device that the tensors are to lie on.
    """

    def __init__(self, memory: torch.Tensor):
        self._bytes = memory

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self._bytes.device

    def tensor(self, region: Region) -> torch.Tensor:
        """The tensor that lies in a region: dense, sharing the arena's memory."""
        count = region_bytes(region.shape, region.dtype)
        part = self._bytes[region.offset : region.offset + count]
        order = region.order or tuple(range(len(region.shape)))
        ordered = part.view(dtype_named(region.dtype)).view([region.shape[dim] for dim in order])
        # .data: a version counter of its own, or writing one region would look like writing all of them.
        return ordered.permute([order.index(dim) for dim in range(len(order))]).data

    def fill(self, start: int, end: int) -> None:
        """Fill bytes ``start`` to ``end`` with the guard pattern."""
        self._bytes[start:end] = GUARD_BYTE

    def first_damage(self, start: int, end: int) -> int | None:
        """Offset of the first byte between ``start`` and ``end`` that is not the guard pattern, None if intact."""
        damaged = self._bytes[start:end] != GUARD_BYTE
        if not bool(damaged.any()):
            return None
        return start + int(damaged.to(torch.uint8).argmax())
