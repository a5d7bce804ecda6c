"""Reads the symbols that a shared library imports from its ELF file, without ``nm``."""

from __future__ import annotations

import struct
from pathlib import Path

from harness.system.files import read_regular

_DYNAMIC_SYMBOLS = 11
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
#: Limits for a hostile library, whose names may overlap, so that a small table makes many long ones.
MAX_BYTES = 256 << 20
_MAX_SYMBOLS, _MAX_NAME_BYTES, _MAX_NAMES_BYTES = 1 << 20, 1 << 14, 64 << 20


def undefined_symbols(library: Path) -> frozenset[str] | None:
    """Returns the symbols that a 64-bit ELF library imports from other libraries.

    Args:
        library: The file. It may be hostile, and its owner may exchange it at any time.

    Returns:
        The names as the linker knows them; None if the file has no readable symbol table.
    """
    try:
        return _undefined(read_regular(library, MAX_BYTES))
    except (OSError, struct.error, ValueError, IndexError):
        return None


def _undefined(data: bytes) -> frozenset[str] | None:
    if data[:6] != b"\x7fELF\x02\x01":  # 64-bit, little-endian
        return None
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    if size != _SECTION.size:
        return None
    sections = [_SECTION.unpack_from(data, start + number * size) for number in range(count)]
    tables = [section for section in sections if section[1] == _DYNAMIC_SYMBOLS]
    if len(tables) != 1:  # a linker writes one
        return None
    ((_, _, _, _, offset, length, link, _, _, _),) = tables
    if length > _MAX_SYMBOLS * _SYMBOL.size:
        return None
    names_at, names_length = sections[link][4:6]
    names_end = min(len(data), names_at + names_length)
    found = set()
    left = _MAX_NAMES_BYTES
    for name, _, _, section, _, _ in _SYMBOL.iter_unpack(data[offset : offset + length]):
        if section == 0 and name:
            first = names_at + name
            end = data.index(b"\0", first, min(names_end, first + _MAX_NAME_BYTES))
            left -= end - first
            if left < 0:
                return None
            found.add(data[first:end].decode("ascii", "replace"))
    return frozenset(found)
