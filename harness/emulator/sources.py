"""The arguments of ``load_inline``, and the translation units that result from them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.emulator.diagnostics import SourceLocation, SourceLocator
from harness.emulator.launches import may_need_addresses
from harness.emulator.lexer import Kind, tokenize
from harness.emulator.rewrite import rewrite_cuda, rewrite_host

#: The headers that ``load_inline`` includes by itself.
CPP_HEADERS = ("torch/extension.h",)
CUDA_HEADERS = ("torch/types.h", "cuda.h", "cuda_runtime.h")
#: The header with the names that nvcc gives every CUDA source.
PRELUDE = "cuemu_prelude.h"


@dataclass(frozen=True)
class SourceFile:
    """A source file passed to ``load``.

    Attributes:
        path: The file's path.
        text: The file's content.
    """

    path: Path
    text: str

    @property
    def is_cuda(self) -> bool:
        """True if nvcc would compile the file."""
        return self.path.suffix in (".cu", ".cuh")


@dataclass(frozen=True)
class InlineSources:
    """The arguments of ``torch.utils.cpp_extension.load_inline`` that decide what is built.

    Attributes:
        name: The extension's name, ``TORCH_EXTENSION_NAME`` in the source.
        cpp_sources: The C++ sources, joined into one translation unit.
        cuda_sources: The CUDA sources, joined into another.
        functions: The function names to bind for Python, with their docstrings; None for no
            binding.
        extra_cflags: The flags for the C++ unit.
        extra_cuda_cflags: The flags for the CUDA unit, in nvcc's spelling.
        extra_ldflags: The flags for the linker.
        extra_include_paths: The folders for ``#include``.
        no_implicit_headers: Whether the sources include torch's headers themselves.
        is_python_module: Whether to import the library as a Python module.
        with_pytorch_error_handling: Whether bound functions translate torch's errors.
        files: The source files (``load``), each a translation unit of its own.
    """

    name: str
    cpp_sources: tuple[str, ...] = ()
    cuda_sources: tuple[str, ...] = ()
    functions: Mapping[str, str] | None = None
    extra_cflags: tuple[str, ...] = ()
    extra_cuda_cflags: tuple[str, ...] = ()
    extra_ldflags: tuple[str, ...] = ()
    extra_include_paths: tuple[str, ...] = ()
    no_implicit_headers: bool = False
    is_python_module: bool = True
    with_pytorch_error_handling: bool = True
    files: tuple[SourceFile, ...] = field(default=())


@dataclass(frozen=True)
class Unit:
    """A translation unit, ready to be written and compiled.

    Attributes:
        file_name: The file's name in the build folder.
        text: The text, rewritten for the emulator or the author's own, with ``#line`` directives.
        names: The names in the author's text, which select the headers that it needs.
        is_cuda: Whether nvcc would compile it.
        folder: For a unit from a file, the folder that ``#include "…"`` searches first.
    """

    file_name: str
    text: str
    names: frozenset[str]
    is_cuda: bool
    folder: Path | None = None


def units(sources: InlineSources, locator: SourceLocator) -> list[Unit]:
    """Returns the rewritten translation units of a build, with the author's files and lines.

    Args:
        sources: The build's arguments.
        locator: The locator of each source in the solution file.

    Returns:
        ``main.cpp``, ``cuda.cu`` and one unit for each file, without empty ones.
    """
    texts = [("\n".join(sources.cpp_sources), False), ("\n".join(sources.cuda_sources), True)]
    texts += [(file.text, file.is_cuda) for file in sources.files]
    by_address = any(may_need_addresses(text, is_cuda) for text, is_cuda in texts)
    rewrite = functools.partial(rewrite_cuda, by_address=by_address)
    found: list[Unit] = []
    if sources.cpp_sources or sources.functions:
        found.append(_cpp_unit(sources, locator))
    if sources.cuda_sources:
        found.append(_cuda_unit(sources, locator, rewrite))
    for index, file in enumerate(sources.files):
        found.append(_file_unit(index, file, rewrite if file.is_cuda else rewrite_host))
    return found


def is_toolkit(folder: str) -> bool:
    """Tells whether a folder holds the headers of a CUDA toolkit, for which the builder has its own.

    Args:
        folder: A folder that a source asks to search.
    """
    return (Path(folder) / "cuda_runtime.h").is_file()


def nvcc_units(sources: InlineSources, locator: SourceLocator) -> list[Unit]:
    """Returns the translation units that nvcc compiles, in torch's form.

    They are not rewritten, and they count lines as in ``units``.

    Args:
        sources: The build's arguments.
        locator: The locator of each source in the solution file.

    Returns:
        ``cuda.cu`` and one unit for each CUDA file.
    """
    found = [_cuda_unit(sources, locator, _as_it_is)] if sources.cuda_sources else []
    cuda_files = [(index, file) for index, file in enumerate(sources.files) if file.is_cuda]
    return [*found, *(_file_unit(index, file, _as_it_is) for index, file in cuda_files)]


def _as_it_is(text: str) -> str:
    return text


def _file_unit(index: int, file: SourceFile, rewrite: Callable[[str], str]) -> Unit:
    places = [SourceLocation(str(file.path), line + 1) for line in range(file.text.count("\n") + 1)]
    suffix = ".cu" if file.is_cuda else ".cpp"
    text = _with_lines(rewrite(file.text), places)
    return Unit(f"unit{index}{suffix}", text, _names(file.text), file.is_cuda, file.path.parent)


def _cpp_unit(sources: InlineSources, locator: SourceLocator) -> Unit:
    implicit = () if sources.no_implicit_headers else CPP_HEADERS
    source = "\n".join(sources.cpp_sources)
    text = implicit_headers(implicit) + _with_lines(
        rewrite_host(source), _places(sources.cpp_sources, "cpp_sources", locator)
    )
    bindings = _bindings(sources)
    return Unit("main.cpp", text + bindings, _names(source) | _names(bindings), is_cuda=False)


def _cuda_unit(sources: InlineSources, locator: SourceLocator, rewrite: Callable[[str], str]) -> Unit:
    implicit = () if sources.no_implicit_headers else CUDA_HEADERS
    source = "\n".join(sources.cuda_sources)
    text = implicit_headers(implicit) + _with_lines(
        rewrite(source), _places(sources.cuda_sources, "cuda_sources", locator)
    )
    return Unit("cuda.cu", text, _names(source), is_cuda=True)


def implicit_headers(headers: Sequence[str]) -> str:
    """Returns the lines that ``load_inline`` puts in front of a source."""
    return "".join(f"#include <{header}>\n" for header in headers)


def _places(sources: Sequence[str], argument: str, locator: SourceLocator) -> list[SourceLocation]:
    return [place for index, source in enumerate(sources) for place in locator.places(source, f"<{argument}[{index}]>")]


def _with_lines(text: str, places: Sequence[SourceLocation]) -> str:
    """Adds a ``#line`` directive wherever the author's lines do not simply continue."""
    written: list[str] = []
    counted: SourceLocation | None = None
    continued = False
    for line, place in zip(text.split("\n"), places, strict=True):
        # A directive inside a continued line would become part of it.
        if place != counted and not continued:
            quoted = place.file.replace("\\", "\\\\").replace('"', '\\"')
            written.append(f'#line {place.line} "{quoted}"')
            counted = place
        written.append(line)
        counted = SourceLocation(counted.file, counted.line + 1) if counted is not None else None
        continued = line.rstrip("\r").endswith("\\")
    return "\n".join(written) + "\n"


def _bindings(sources: InlineSources) -> str:
    if sources.functions is None:
        return ""
    lines = ['#line 1 "<functions>"', "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
    for name, documentation in sources.functions.items():
        bound = f"torch::wrap_pybind_function({name})" if sources.with_pytorch_error_handling else name
        lines.append(f"m.def({_c_string(name)}, {bound}, {_c_string(documentation)});")
    return "\n".join([*lines, "}", ""])


def _c_string(text: str) -> str:
    """Returns a C++ string literal of a text, with bytes other than plain ASCII in octal."""
    pieces: list[str] = []
    for byte in text.encode("utf-8", errors="replace"):
        character = chr(byte)
        is_plain = 32 <= byte < 127 and character not in '"\\?'
        pieces.append(character if is_plain else f"\\{byte:03o}")
    return f'"{"".join(pieces)}"'


_DIRECTIVE_NAME = re.compile(r"[A-Za-z_]\w*")


def _names(text: str) -> frozenset[str]:
    """Returns every name in a text, including those in preprocessor lines."""
    found: set[str] = set()
    for token in tokenize(text):
        if token.kind is Kind.NAME:
            found.add(token.text)
        elif token.kind is Kind.DIRECTIVE:
            found.update(_DIRECTIVE_NAME.findall(token.text))
    return frozenset(found)
