"""Digests of what crossed: two evaluations whose digests are equal have had, and returned, the same bits.

A tensor's words of 32 bits, the last filled up with zeros, stand in rows of ``COLUMNS``, in row-major order. The sums
of all whole rows, and those of their columns, are taken, each sum times a key, and the products are added modulo
2^64; so are the words of the last, shorter row. Number i has the odd 64-bit key ``splitmix64(i) | 1``. The digest is
the beginning of a sha256 of dtype, shape and these three numbers. Integer sums are the same in whatever order they
are taken, so a device can add as it likes, and a large tensor is read twice. Two tensors that differ somewhere have
equal numbers with a chance of about 2^-32, were the keys drawn at random. They are known: this tells what happens by
itself, and stops nobody who wants his results to collide, for which there is nothing to gain, since a digest decides
no verdict.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping

import torch

from harness.judge.exchange import as_bytes

COLUMNS = 1 << 16
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
    if spare := every.numel() % 4:
        every = torch.nn.functional.pad(every, (0, 4 - spare))
    words = every.view(torch.int32)
    whole = words.numel() // COLUMNS * COLUMNS
    rows, rest = words[:whole].view(-1, COLUMNS), words[whole:]
    sums = [_keyed(rest.to(torch.int64))]
    if whole:
        sums += [_keyed(rows.sum(dim, dtype=torch.int64)) for dim in (0, 1)]
    return f"{tensor.dtype} {list(tensor.shape)}", torch.stack(sums)


def _keyed(sums: torch.Tensor) -> torch.Tensor:
    """The sum of numbers times their keys."""
    return (sums * _keys(sums.device, 1 << (len(sums) - 1).bit_length() if len(sums) else 0)[: len(sums)]).sum()


@functools.lru_cache(maxsize=16)
def _keys(device: torch.device, count: int) -> torch.Tensor:
    """The first keys.

    Mixed as in splitmix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    state = torch.arange(1, count + 1, dtype=torch.int64, device=device) * _signed(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ ((state >> shift) & _LOW_BITS[shift])) * _signed(factor)
    return (state ^ ((state >> 31) & _LOW_BITS[31])) | 1


def _signed(number: int) -> int:
    """A 64-bit number as torch's integers have it."""
    return number - (1 << 64) if number >> 63 else number
