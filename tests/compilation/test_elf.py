"""Tests reading the symbol tables of libraries, which may be forged."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from harness.compilation.elf import undefined_symbols
from harness.judge.evidence.links import Links, links

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_HEADER_BYTES = 64
_DYNAMIC_SYMBOLS, _STRINGS = 11, 3


def library(folder: Path, names: bytes, places: list[int], tables: int = 1) -> Path:
    """A library whose undefined symbols have their names at these places of a string table.

    Several symbol tables are the same one, named as often.
    """
    symbols = b"".join(_SYMBOL.pack(place, 0, 0, 0, 0, 0) for place in places)
    names_at = _HEADER_BYTES
    symbols_at = names_at + len(names)
    sections_at = symbols_at + len(symbols)
    sections = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (0, _STRINGS, 0, 0, names_at, len(names), 0, 0, 0, 0),
        *[(0, _DYNAMIC_SYMBOLS, 0, 0, symbols_at, len(symbols), 1, 0, 0, 0)] * tables,
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


def test_many_tables_take_no_time(tmp_path: Path) -> None:
    """Each table would be read with the whole table of names."""
    assert undefined_symbols(library(tmp_path, b"\0name\0", [1], tables=2)) is None
    names = b"\0name\0" + bytes(16 << 20)
    assert undefined_symbols(library(tmp_path, names, [1], tables=60_000)) is None


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.so"
    os.mkfifo(pipe)
    endless = tmp_path / "endless.so"
    endless.symlink_to("/dev/zero")
    assert undefined_symbols(pipe) is None
    assert undefined_symbols(endless) is None
