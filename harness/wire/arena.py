"""The exchange arena: one block of shared memory that holds every exchanged tensor.

Nothing else lies in it. On the CPU the arena is an anonymous shared file, which the judge creates
and both sides map. On a GPU it is shared device memory (``cuda_memory``). Guard bands separate the
regions. The judge fills the bands and verifies them.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
import tempfile
from collections.abc import Sequence

import torch

from harness.wire.tensors import Region

ALIGNMENT = 256
GUARD_BYTES = 4096
#: Two bytes each, the low one first. NaN in every floating format.
NANS = (0xFF, 0xFF)
#: By trial: a large number of each sign, since code that compares drops NaN; and zero, which is a valid
#: index and a bin of a histogram. What a kernel multiplies them by lies in memory of its own, whose
#: surroundings change in the same rhythm (``FILLS`` of the emulator): not NaN beside a large number.
GUARDS = ((0xFB, 0x7B), NANS, (0xFB, 0xFB), (0, 0))


def dtype_name(dtype: torch.dtype) -> str:
    """Returns the name of a dtype without its prefix: ``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str) -> torch.dtype:
    """Returns the dtype of a name without prefix: ``torch.float32`` for ``float32``.

    Raises:
        ValueError: torch has no such dtype.
    """
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"no dtype named {name!r}")
    return dtype


def region_bytes(shape: Sequence[int], dtype: str) -> int:
    """Returns the size in bytes of a dense tensor."""
    count = 1
    for extent in shape:
        count *= extent
    return count * dtype_named(dtype).itemsize


def order_of(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Returns the order in which a tensor's dimensions lie in memory (see ``Region``).

    Returns:
        The order; empty for a row-major tensor. None if the tensor has gaps or elements that share
        memory (a slice, an expanded tensor), because no order describes such a tensor.
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
    """Allocates an arena's regions one after another, with guard bands around each."""

    def __init__(self) -> None:
        self._end = GUARD_BYTES
        self.regions: list[Region] = []

    def add(self, shape: Sequence[int], dtype: torch.dtype, order: tuple[int, ...] = ()) -> Region:
        """Adds a region for a dense tensor.

        Args:
            shape: The tensor's shape.
            dtype: The tensor's dtype.
            order: The order of its dimensions in memory (see ``Region``); empty for row-major.
        """
        region = Region(self._end, tuple(shape), dtype_name(dtype), order)
        end = self._end + region_bytes(region.shape, region.dtype)
        self._end = -(-end // ALIGNMENT) * ALIGNMENT + GUARD_BYTES
        self.regions.append(region)
        return region

    @property
    def total_bytes(self) -> int:
        """The size in bytes of an arena that holds all regions added so far."""
        return self._end

    def guards(self) -> list[tuple[int, int]]:
        """Returns each guard band as a pair: its first byte, and the byte after its last one."""
        gaps, start = [], 0
        for region in self.regions:
            gaps.append((start, region.offset))
            start = region.offset + region_bytes(region.shape, region.dtype)
        gaps.append((start, self._end))
        return gaps


def create_shared_file(size: int) -> int:
    """Creates an anonymous file of ``size`` bytes. The caller closes the descriptor.

    On Linux the function seals the size. Otherwise a process that truncates the file would kill, by
    ``SIGBUS``, every process that has it mapped.
    """
    if sys.platform != "linux":
        descriptor, path = tempfile.mkstemp(prefix="harness-arena-")
        os.unlink(path)  # noqa: PTH108 - the path only serves to get a descriptor
        os.ftruncate(descriptor, size)
        return descriptor
    descriptor = os.memfd_create("harness-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor


def map_file(descriptor: int, size: int) -> torch.Tensor:
    """Maps a shared file as a uint8 tensor of shape (size,).

    The mapping lives as long as the tensor.
    """
    return torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)


class Arena:
    """A view of the shared memory that returns its regions as tensors.

    Args:
        memory: The whole memory as uint8 of shape (bytes,), on the device where the tensors must
            lie.
    """

    def __init__(self, memory: torch.Tensor):
        self._bytes = memory
        #: The pattern that the guard bands hold.
        self.guard = NANS

    @property
    def device(self) -> torch.device:
        """The device that holds the arena."""
        return self._bytes.device

    def tensor(self, region: Region) -> torch.Tensor:
        """Returns the dense tensor in a region. It shares the arena's memory."""
        count = region_bytes(region.shape, region.dtype)
        part = self._bytes[region.offset : region.offset + count]
        order = region.order or tuple(range(len(region.shape)))
        ordered = part.view(dtype_named(region.dtype)).view([region.shape[dim] for dim in order])
        # .data gives each region its own version counter. Otherwise a write to one region would
        # look like a write to all of them.
        return ordered.permute([order.index(dim) for dim in range(len(order))]).data

    def fill(self, start: int, end: int, pattern: tuple[int, int] = NANS) -> None:
        """Fills the bytes from ``start`` up to ``end`` with a pattern: bytes of even offset, and of odd ones."""
        if len(set(pattern)) == 1:
            self._bytes[start:end] = pattern[0]
            return
        for parity, byte in enumerate(pattern):
            self._bytes[start + (start + parity) % 2 : end : 2] = byte

    def first_damage(self, start: int, end: int) -> int | None:
        """Returns the offset of the first byte in a guard band that differs from ``guard``.

        Args:
            start: The first byte of the band.
            end: The byte after the last one.

        Returns:
            The offset, or None if all these bytes are intact.
        """
        held = self._bytes[start:end]
        damaged = torch.empty_like(held, dtype=torch.bool)
        for parity, byte in enumerate(self.guard):
            every_other = slice((start + parity) % 2, None, 2)
            damaged[every_other] = held[every_other] != byte
        if not bool(damaged.any()):
            return None
        return start + int(damaged.to(torch.uint8).argmax())
