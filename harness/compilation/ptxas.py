"""Parses the output of ``ptxas -v`` about kernels, and demangles kernel names."""

from __future__ import annotations

import ctypes
import functools
import re
import struct
from collections.abc import Callable

from harness.records.kernels import CompiledKernel
from harness.system.text import kernel_name

_ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '(?P<name>[^']+)' for '(?P<arch>\w+)'")
_FRAME = re.compile(r"\s*(\d{1,9}) bytes stack frame, (\d{1,9}) bytes spill stores, (\d{1,9}) bytes spill loads")
_USED = re.compile(r"ptxas info\s*: Used (?P<registers>\d{1,9}) registers(?P<rest>.*)")
#: Older versions print the kernel's own shared memory and the system's separately: ``4096+16 bytes
#: smem``.
_SHARED = re.compile(r"(?<!\d)(\d{1,9})(?:\+(\d{1,9}))? bytes smem")
#: The stack including the functions that a kernel calls.
_WHOLE_STACK = re.compile(r"(?<!\d)(\d{1,9}) bytes cumulative stack size")
_TOLD = re.compile(r"ptxas info\s|\s*\d+ bytes stack frame, ")
#: Most characters that a library's file of figures has, some thousand kernels.
MAX_FIGURES_CHARACTERS = 500_000
#: Bank 3 holds what a source declares as ``__constant__``.
_CONSTANT_SECTION = b".nv.constant3"


def is_told(line: str) -> bool:
    """Returns whether a line of nvcc's output is one that ``ptxas -v`` adds."""
    return _TOLD.match(line) is not None


def compiled_kernels(output: str, constant_bytes: int | None) -> tuple[CompiledKernel, ...]:
    """Returns the kernels that ``ptxas -v`` reports.

    Args:
        output: nvcc's output for one source. Other lines may come in between.
        constant_bytes: The constant memory that the source declares, for all kernels.

    Returns:
        One entry for each kernel with its registers, in the order of the output.
    """
    found: list[CompiledKernel] = []
    entry: re.Match[str] | None = None
    frame: re.Match[str] | None = None
    for line in output.splitlines():
        if started := _ENTRY.match(line):
            entry, frame = started, None
        elif told := _FRAME.match(line):
            frame = told
        elif entry is not None and (used := _USED.match(line)):
            stack, stores, loads = (int(number) for number in frame.groups()) if frame else (0, 0, 0)
            found.append(
                CompiledKernel(
                    name=kernel_name(demangled(entry["name"])),
                    arch=entry["arch"],
                    registers=int(used["registers"]),
                    shared_bytes=sum(int(own) + int(more or 0) for own, more in _SHARED.findall(used["rest"])),
                    stack_bytes=max([stack, *map(int, _WHOLE_STACK.findall(used["rest"]))]),
                    spill_store_bytes=stores,
                    spill_load_bytes=loads,
                    constant_bytes=constant_bytes,
                )
            )
            entry = None
    return tuple(found)


def declared_constants(cubin: bytes) -> int | None:
    """Returns the bytes of constant memory that a GPU object file declares.

    Kernel arguments do not count.

    Newer versions of ptxas do not print them. The file is ELF. Its header gives the place of the
    section table and the section that holds the names.

    Args:
        cubin: The file's content.

    Returns:
        The bytes; None if the content is no such file.
    """
    try:
        if cubin[:5] != b"\x7fELF\x02":
            return None
        (table,) = struct.unpack_from("<Q", cubin, 40)
        size, count, names_at = struct.unpack_from("<HHH", cubin, 58)
        sections: list[tuple[int, ...]] = [
            struct.unpack_from("<IIQQQQ", cubin, table + index * size) for index in range(count)
        ]
        names, wanted = sections[names_at][4], _CONSTANT_SECTION + b"\0"
        return sum(section[5] for section in sections if cubin.startswith(wanted, names + section[0]))
    except (struct.error, IndexError):
        return None


def demangled(name: str) -> str:
    """Returns a C++ name as a person writes it; the name itself if it is not mangled."""
    demangle = _demangler()
    if demangle is None or not name.startswith("_Z"):
        return name
    return demangle(name) or name


@functools.cache
def _demangler() -> Callable[[str], str | None] | None:
    """Returns the C++ library's own function, which exists wherever torch does.

    None if it is missing.
    """
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        demangle, free = library.__cxa_demangle, library.free
    except (OSError, AttributeError):
        return None
    demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    demangle.restype = ctypes.c_void_p
    free.argtypes, free.restype = [ctypes.c_void_p], None

    def call(name: str) -> str | None:
        status = ctypes.c_int()
        address = demangle(name.encode(errors="replace"), None, None, ctypes.byref(status))
        if not address:
            return None
        try:
            return ctypes.string_at(address).decode(errors="replace")
        finally:
            free(address)

    return call
