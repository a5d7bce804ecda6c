"""Reads the symbols that a shared library imports from its ELF file, without ``nm``."""

from __future__ import annotations

import struct
from pathlib import Path

_DYNAMIC_SYMBOLS = 11
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
#: Limits for names. The names of a hostile library may overlap, so that a small table makes many
#: long ones.
_MAX_NAME_BYTES, _MAX_NAMES_BYTES = 1 << 14, 64 << 20


def undefined_symbols(library: Path) -> frozenset[str] | None:
    """Returns the symbols that a 64-bit ELF library imports from other libraries.

    Args:
        library: The file. It may be hostile.

    Returns:
        The names as the linker knows them; None if the file has no readable symbol table.
    """
    try:
        data = memoryview(library.read_bytes())
        return _undefined(data)
    except (OSError, struct.error, ValueError, IndexError):
        return None


def _undefined(data: memoryview) -> frozenset[str] | None:
    if bytes(data[:6]) != b"\x7fELF\x02\x01":  # 64-bit, little-endian
        return None
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    if size != _SECTION.size:
        return None
    sections = [_SECTION.unpack_from(data, start + number * size) for number in range(count)]
    found: set[str] | None = None
    for _, kind, _, _, offset, length, link, _, _, _ in sections:
        if kind != _DYNAMIC_SYMBOLS:
            continue
        names_at, names_length = sections[link][4:6]
        names = bytes(data[names_at : names_at + names_length])
        found = set() if found is None else found
        left = _MAX_NAMES_BYTES
        for name, _, _, section, _, _ in _SYMBOL.iter_unpack(data[offset : offset + length]):
            if section == 0 and name:
                end = names.index(b"\0", name, name + _MAX_NAME_BYTES)
                left -= end - name
                if left < 0:
                    return None
                found.add(names[name:end].decode("ascii", "replace"))
    return None if found is None else frozenset(found)
