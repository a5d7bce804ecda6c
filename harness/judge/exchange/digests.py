"""Computes digests of tensors: evaluations with equal digests exchanged the same bits.

The words of a tensor, in row-major order and padded with zeros, stand in rows of ``COLUMNS``. The
digest adds up rows and columns modulo 2^64. It mixes each sum with its place and adds up the
results, once for the rows and once for the columns. The words of the last, shorter row are mixed
and added up directly. The digest is the start of a sha256 of dtype, shape and these three numbers.

Integer sums do not depend on their order, so a device can add as it likes, and reads a large tensor
twice. The number of columns is odd, so that a change which is the same everywhere does not vanish
modulo 2^64.

A change that keeps the sum of every row and column stays unseen. An example is to negate elements
in the four corners of a rectangle, if the sign is a word's highest bit; that takes more than one
row. Digests show accidental differences. They stop nobody who wants results to collide, which
brings no gain, since a digest decides no verdict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch

from harness.judge.exchange.exchange import as_bytes

COLUMNS = (1 << 16) - 1
DIGITS = 16
_LOW_BITS = {30: (1 << 34) - 1, 27: (1 << 37) - 1, 31: (1 << 33) - 1}


class Digests:
    """Computes digests by name, with one synchronisation of the device.

    Values added under the same name go into one digest, in their order.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[str, torch.Tensor]]] = {}

    def add(self, name: str, value: torch.Tensor | str) -> None:
        """Add a tensor, or a string in place of one; on a GPU its sums are only queued."""
        told, sums = (value, torch.empty(0, dtype=torch.int64)) if isinstance(value, str) else _sums(value.detach())
        self._parts.setdefault(name, []).append((told, sums))

    def add_all(self, named: Mapping[str, torch.Tensor | str], prefix: str = "") -> None:
        """Add several values, with a prefix to their names."""
        for name, value in named.items():
            self.add(prefix + name, value)

    def finished(self) -> dict[str, str]:
        """Return the digests by name, ``DIGITS`` hex digits each."""
        sums = [one for parts in self._parts.values() for _, one in parts if len(one)]
        numbers = iter(torch.cat(sums).tolist() if sums else [])
        found = {}
        for name, parts in self._parts.items():
            digest = hashlib.sha256()
            for told, one in parts:
                digest.update(
                    f"{told}\0{[next(numbers) for _ in range(len(one))]}\0".encode("utf-8", "backslashreplace")
                )
            found[name] = digest.hexdigest()[:DIGITS]
        return found


def _sums(tensor: torch.Tensor) -> tuple[str, torch.Tensor]:
    """Return a tensor's form in words, and its sums."""
    every = as_bytes(tensor)
    # A device adds 64-bit words as fast as it reads them. The highest bits of a 64-bit element
    # would be lost in a sum, so such an element becomes two words of 32 bits.
    word = torch.int64 if tensor.element_size() < 8 else torch.int32
    if spare := every.numel() % word.itemsize:
        every = torch.nn.functional.pad(every, (0, word.itemsize - spare))
    words = every.view(word)
    whole = words.numel() // COLUMNS * COLUMNS
    rows, rest = words[:whole].view(-1, COLUMNS), words[whole:]
    sums = [_mixed(rest.to(torch.int64))]
    if whole:
        sums += [_mixed(rows.sum(dim, dtype=torch.int64)) for dim in (0, 1)]
    return f"{tensor.dtype} {list(tensor.shape)}", torch.stack(sums)


def _mixed(sums: torch.Tensor) -> torch.Tensor:
    """Combine many numbers to one, each mixed with its place.

    The mixing is that of splitmix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom
    number generators", 2014.
    """
    places = torch.arange(1, len(sums) + 1, dtype=torch.int64, device=sums.device)
    state = sums + places * _signed(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ ((state >> shift) & _LOW_BITS[shift])) * _signed(factor)
    return (state ^ ((state >> 31) & _LOW_BITS[31])).sum()


def _signed(number: int) -> int:
    """Convert a 64-bit number to torch's signed integers."""
    return number - (1 << 64) if number >> 63 else number
