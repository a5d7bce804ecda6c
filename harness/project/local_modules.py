"""Finds the modules of the user's own that a problem imports: those in folders of ``PYTHONPATH`` and the like.

Installed packages do not count, nor does the harness. The modules are found by the text of the imports, and nothing
of them runs. ``os.path`` says no where ``pathlib`` raises: at a folder that cannot be read, or a name that is too long.
"""

# ruff: noqa: PTH112, PTH113

from __future__ import annotations

import ast
import hashlib
import os
import sys
import sysconfig
import types
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import package
from harness.system.files import read_source

#: The most files of which a change is noticed.
MOST_FILES = 256
_INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")


def digest(tree: ast.Module, source: str) -> str:
    """Returns the sha256 of a problem's text, and of the user's own modules that it imports.

    Args:
        tree: The parsed text.
        source: The text.
    """
    found = hashlib.sha256(source.encode())
    for path, data in _modules(tree):
        found.update(hashlib.sha256(data).digest() + os.fsencode(path.name))
    return found.hexdigest()


def forget(tree: ast.Module) -> None:
    """Takes the user's own modules that a problem imports out of ``sys.modules``, so that they are read again."""
    paths = {os.path.realpath(path) for path, _ in _modules(tree)}
    for name, module in list(sys.modules.items()) if paths else ():
        file = vars(module).get("__file__") if isinstance(module, types.ModuleType) else None
        if isinstance(file, str) and os.path.realpath(file) in paths:
            del sys.modules[name]
            parent, _, own = name.rpartition(".")
            if vars(sys.modules.get(parent, module)).get(own) is module:
                delattr(sys.modules[parent], own)


def _modules(tree: ast.Module) -> Iterator[tuple[Path, bytes]]:
    """Yields the files of the modules that a text imports, and of those that these import, each once."""
    folders = _folders()
    waiting, seen = list(_imported(tree, folders)), set[Path]()
    while waiting and len(seen) < MOST_FILES:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        try:
            data = read_source(path)
        except OSError:
            continue  # the import itself says so
        yield path, data
        try:
            waiting += _imported(ast.parse(data), folders, path)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue


def _folders() -> list[Path]:
    """Returns the folders of modules that are neither installed nor the harness's."""
    installed = [Path(sysconfig.get_path(name)).resolve() for name in _INSTALLED]
    own = package.FOLDER.parent.resolve()
    folders = [Path(entry).resolve() for entry in dict.fromkeys(sys.path) if entry and os.path.isdir(entry)]
    return [one for one in folders if one != own and not any(one.is_relative_to(other) for other in installed)]


def _imported(tree: ast.Module, folders: Sequence[Path], path: Path | None = None) -> Iterator[Path]:
    """Yields the files of the modules that a text names in its imports.

    Args:
        tree: The parsed text.
        folders: Where modules lie.
        path: The text's own file, which relative imports begin at; None for a problem, which has none.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                yield from _files(folders, one.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            parts = node.module.split(".") if node.module else []
            places = folders
            if node.level:
                if path is None or node.level > len(path.parents):
                    continue
                places = [path.parents[node.level - 1]]
            for one in node.names:
                yield from _files(places, [*parts, one.name])


def _files(folders: Sequence[Path], parts: Sequence[str]) -> Iterator[Path]:
    """Yields the files that importing ``a.b.c`` reads; the last part may be a name in a module."""
    for folder in folders:
        if not (os.path.isdir(folder / parts[0]) or os.path.isfile(folder / f"{parts[0]}.py")):
            continue
        for end in range(1, len(parts) + 1):
            place = folder.joinpath(*parts[:end])
            yield from (file for file in (place / "__init__.py", Path(f"{place}.py")) if os.path.isfile(file))
        return
