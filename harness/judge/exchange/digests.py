"""Digests of what crossed: two evaluations whose digests are equal have had, and returned, the same bits.

A tensor's words, the last filled up with zeros, stand in rows of ``COLUMNS``, in row-major order. Rows and columns are
added up, modulo 2^64, each sum is mixed with its place, and what comes of that is added up, once for the rows and once
for the columns; the words of the last, shorter row are mixed and added up as they are. The digest is the beginning of a
sha256 of dtype, shape and these three numbers. Integer sums are the same in whatever order they are taken, so a device
can add as it likes, and a large tensor is read twice. The number of columns is odd, so that a change which is the same
everywhere does not vanish modulo 2^64. What differs and has the same sum in every row and column stays unseen: negating
elements whose sign is a word's highest bit in the four corners of a rectangle, say, which takes more than one row.
A digest tells what happens by itself, and stops nobody who wants his results to collide, for which there is nothing to
gain, since it decides no verdict.
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
    """Digests by name, in one synchronisation with the device.

    What is added under a name that is there already goes into the same digest, in its order.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[str, torch.Tensor]]] = {}

    def add(self, name: str, value: torch.Tensor | str) -> None:
        """Add a tensor, or a word in place of one; on a GPU its sums are only queued."""
        told, sums = (value, torch.empty(0, dtype=torch.int64)) if isinstance(value, str) else _sums(value.detach())
        self._parts.setdefault(name, []).append((told, sums))

    def add_all(self, named: Mapping[str, torch.Tensor | str], prefix: str = "") -> None:
        """Add several."""
        for name, value in named.items():
            self.add(prefix + name, value)

    def finished(self) -> dict[str, str]:
        """The digests by name, ``DIGITS`` hex digits each."""
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
    """A tensor's form in words, and its sums."""
    every = as_bytes(tensor)
    # A device adds 64-bit words as fast as it reads them. Of an element of 64 bits the highest ones would have no room
    # in a sum: it makes two words of 32.
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
    """One number of many, each mixed with its place.

    Mixed as in splitmix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    places = torch.arange(1, len(sums) + 1, dtype=torch.int64, device=sums.device)
    state = sums + places * _signed(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ ((state >> shift) & _LOW_BITS[shift])) * _signed(factor)
    return (state ^ ((state >> 31) & _LOW_BITS[31])).sum()


def _signed(number: int) -> int:
    """A 64-bit number as torch's integers have it."""
    return number - (1 << 64) if number >> 63 else number
