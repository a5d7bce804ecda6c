"""Tests reading the symbol tables of libraries, which may be forged."""

from __future__ import annotations

import struct
from pathlib import Path

from harness.compilation.elf import undefined_symbols
from harness.judge.evidence.links import Links, links

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_HEADER_BYTES = 64
_DYNAMIC_SYMBOLS, _STRINGS = 11, 3


def library(folder: Path, names: bytes, places: list[int]) -> Path:
    """A library whose undefined symbols have their names at these places of a string table."""
    symbols = b"".join(_SYMBOL.pack(place, 0, 0, 0, 0, 0) for place in places)
    names_at = _HEADER_BYTES
    symbols_at = names_at + len(names)
    sections_at = symbols_at + len(symbols)
    sections = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (0, _STRINGS, 0, 0, names_at, len(names), 0, 0, 0, 0),
        (0, _DYNAMIC_SYMBOLS, 0, 0, symbols_at, len(symbols), 1, 0, 0, 0),
    ]
    header = bytearray(_HEADER_BYTES)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 0x28, sections_at)
    struct.pack_into("<HH", header, 0x3A, _SECTION.size, len(sections))
    path = folder / "library.so"
    path.write_bytes(bytes(header) + names + symbols + b"".join(_SECTION.pack(*one) for one in sections))
    return path


def test_names_are_read(tmp_path: Path) -> None:
    names = b"\0_ZN2at6native5gluttERKNS_6TensorE\0printf\0"
    path = library(tmp_path, names, [1, names.index(b"printf")])
    assert undefined_symbols(path) == {"_ZN2at6native5gluttERKNS_6TensorE", "printf"}
    assert links([path]).direct == ("at::native::glutt",)


def test_a_length_beyond_all_bounds_is_no_name(tmp_path: Path) -> None:
    names = b"\0_ZN99999999999999999999999x\0"
    assert links([library(tmp_path, names, [1])]) == Links()


def test_overlapping_names_take_no_memory(tmp_path: Path) -> None:
    names = b"\0" + b"n" * (1 << 20)
    assert undefined_symbols(library(tmp_path, names + b"\0", list(range(1, 100)))) is None
    short = b"\0" + b"n" * (1 << 13) + b"\0"
    assert undefined_symbols(library(tmp_path, short, [1] * (1 << 14))) is None
