"""Reads the symbol tables of a candidate's libraries, to find what they use of torch.

The harness counts operators that torch's dispatcher calls when they run. A library can call the
functions behind them directly, uncounted. But then it has to name them, or the functions that look
names up. The judge reads its own copies of the libraries.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.aten.operators import IDLE, heavy_operator
from harness.compilation.elf import undefined_symbols

#: Processor seconds that reading one candidate's libraries may take. A hostile one may map
#: thousands.
MAX_READ_S = 5.0
#: Namespaces of the functions behind operators, past the dispatcher.
_DIRECT = (
    ("at", "native"),
    ("at", "cpu"),
    ("at", "cuda", "blas"),
    ("at", "compositeexplicitautograd"),
    ("at", "compositeexplicitautogradnonfunctional"),
    ("at", "compositeimplicitautograd"),
)
#: Libraries behind torch's products: BLAS of levels 2 and 3 by its names in Fortran, its C interface, MKL and oneDNN.
_PRODUCTS = re.compile(
    r"[sdcz](ge|gb|sy|sb|sp|he|hb|hp|tr|tb|tp)(mm|mmt|mv|r|rc|ru|r2|rk|r2k|sm|sv)_?|(cblas|mkl|dnnl)_\w+"
)
#: Functions that find operators or functions by name.
_HIDDEN = (
    ("dlsym",),
    ("dlvsym",),
    ("dlopen",),
    ("dlmopen",),
    ("c10", "Dispatcher", "findSchema"),
    ("c10", "Dispatcher", "findSchemaOrThrow"),
    ("c10", "Dispatcher", "findOp"),
)
#: Functions that keep operators from being counted.
_SWITCHES = (
    ("at", "set_record_function_tls_"),
    ("at", "enableRecordFunction"),
    ("at", "clearCallbacks"),
    ("at", "clearGlobalCallbacks"),
    ("at", "removeCallback"),
    ("at", "disableCallback"),
)
#: The length of a name; no honest one has more digits.
_DIGITS = re.compile(r"\d{1,6}")
#: Parts of a name that are read. A hostile name has thousands.
_MOST_PARTS = 16


@dataclass(frozen=True)
class Links:
    """The functions of torch that a candidate's libraries name.

    Attributes:
        direct: Functions behind operators that compute something, such as
            ``at::native::native_group_norm``.
        heavy: Heavy operators called through the dispatcher, such as ``native_group_norm``.
        hidden: Functions that look others up or keep operators from being counted, and libraries
            that say nothing.
        is_counted: Whether nothing keeps torch's operators from being counted. Otherwise their
            share of the work is unknown.
    """

    direct: tuple[str, ...] = ()
    heavy: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    is_counted: bool = True


def links(libraries: Iterable[Path]) -> Links:
    """Find what some libraries name of torch.

    Args:
        libraries: The files; links to one file are read once. A file that cannot be read appears
            under ``hidden``, as does one that was loaded and has gone since (``mapped_code``), and
            the rest once reading has taken ``MAX_READ_S``.
    """
    direct, heavy, hidden = set[str](), set[str](), set[str]()
    is_counted = True
    read: set[tuple[int, int]] = set()
    patience = time.thread_time() + MAX_READ_S
    for library in libraries:
        if time.thread_time() > patience:
            hidden.add(f"more libraries than the judge reads in {MAX_READ_S:g} s")
            is_counted = False
            break
        if library.name.endswith(" (deleted)"):
            hidden.add("a library that was removed or replaced after it was loaded")
            is_counted = False
            continue
        with contextlib.suppress(OSError):
            status = library.stat()
            if (status.st_dev, status.st_ino) in read:
                continue
            read.add((status.st_dev, status.st_ino))
        symbols = undefined_symbols(library)
        if symbols is None:
            hidden.add("a library without a readable symbol table")
            continue
        for path in map(_path, symbols):
            name = "::".join(path)
            if path in _HIDDEN or path in _SWITCHES:
                hidden.add(name)
                is_counted = is_counted and path not in _SWITCHES
            elif path[:2] == ("at", "_ops") and len(path) == 4:
                if path[3] == "redispatch" and path[2] not in IDLE:
                    direct.add(name)
                elif operator := heavy_operator(path[2]):
                    heavy.add(operator)
            elif _is_direct(path):
                direct.add(name)
    return Links(tuple(sorted(direct)), tuple(sorted(heavy)), tuple(sorted(hidden)), is_counted)


def _is_direct(path: tuple[str, ...]) -> bool:
    if len(path) == 1:
        return _PRODUCTS.fullmatch(path[0]) is not None
    return any(path[: len(one)] == one for one in _DIRECT) and path[-1] not in IDLE


def _path(symbol: str) -> tuple[str, ...]:
    """Split a symbol: ``_ZN2at6native5gluttERKNS_6TensorE`` gives ``("at", "native", "glutt")``."""
    if not symbol.startswith("_Z"):
        return (symbol,)
    position = 2
    if symbol.startswith("N", position):
        position += 1
        while symbol[position : position + 1] in ("K", "V", "r", "R", "O"):
            position += 1
    parts: list[str] = []
    while len(parts) < _MOST_PARTS and (match := _DIGITS.match(symbol, position)):
        start = match.end()
        position = start + int(match[0])
        parts.append(symbol[start:position])
        if not symbol.startswith("_ZN"):
            break
    return tuple(parts)
