"""Replaces ``torch.utils.cpp_extension.load_inline`` and ``load`` on the emulated device.

A solution file calls torch's functions; the worker replaces them by an ``InlineLoader``'s methods.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from harness.compilation.errors import BuildFailed, Unsupported, failed_build
from harness.compilation.functions import check_functions, undeclared_functions
from harness.compilation.includes import check_includes
from harness.emulator.compiler import Mode
from harness.emulator.diagnostics import SourceLocator
from harness.emulator.sources import InlineSources, SourceFile
from harness.emulator.toolchain import build_key, build_library

#: A symbol of torch's own namespaces that only its libraries for CUDA define.
_CUDA_SYMBOL = re.compile(r"undefined symbol: (?P<symbol>_ZNK?\d?(?:2at|3c10|5torch)\w*cuda\w*)", re.IGNORECASE)
_REMEDY = "do without this part of torch's C++ interface for CUDA"


class InlineLoader:
    """Builds and loads the extensions of one solution.

    Args:
        solution_path: The solution file, as messages name it.
        solution_text: The file's content, in which the loader finds the lines of CUDA strings.
        cached: The libraries that exist already, by build key.
        out_dir: The folder for new libraries.
        on_build: A callback around each compilation. It receives ``"begin"`` or ``"end"``, and the
            extension's name.
        mode: How kernels will run. It is part of the build key.
        compat: Whether code for an older torch may build. It is part of the build key.
        refused: The message and log of each build that a compiler has already refused, by build
            key.
        headers: The folder of precompiled headers; None to do without.

    Attributes:
        built: The libraries that this loader has built, by build key.
        refused: The message and log of each refused build, known or new, by build key.
        given: The arguments of every build so far, new or cached, by build key.
        locator: The locator of the solution's lines.
    """

    def __init__(
        self,
        solution_path: Path | str,
        solution_text: str,
        cached: Mapping[str, Path],
        out_dir: Path,
        on_build: Callable[[str, str], None],
        *,
        mode: Mode = "fast",
        compat: bool = False,
        refused: Mapping[str, tuple[str, str]] = MappingProxyType({}),
        headers: Path | None = None,
    ):
        self.built: dict[str, Path] = {}
        self.given: dict[str, InlineSources] = {}
        self.locator = SourceLocator(solution_path, solution_text)
        self._cached = cached
        self._out_dir = out_dir
        self._on_build = on_build
        self._mode = mode
        self._compat = compat
        self._headers = headers
        self.refused = dict(refused)

    def load_inline(
        self,
        name: str,
        cpp_sources: str | Sequence[str],
        cuda_sources: str | Sequence[str] | None = None,
        sycl_sources: str | Sequence[str] | None = None,
        functions: str | Sequence[str] | Mapping[str, str] | None = None,
        extra_cflags: Sequence[str] | None = None,
        extra_cuda_cflags: Sequence[str] | None = None,
        extra_sycl_cflags: Sequence[str] | None = None,
        extra_ldflags: Sequence[str] | None = None,
        extra_include_paths: str | Sequence[str] | None = None,
        build_directory: str | None = None,
        verbose: bool = False,
        with_cuda: bool | None = None,
        with_sycl: bool | None = None,
        is_python_module: bool = True,
        with_pytorch_error_handling: bool = True,
        keep_intermediates: bool = True,
        use_pch: bool = False,
        no_implicit_headers: bool = False,
    ) -> ModuleType | str:
        """Builds (or finds) an extension given as strings, and loads it. The arguments are torch's.

        Returns:
            The module, or for ``is_python_module=False`` the loaded library's path.

        Raises:
            BuildFailed: The arguments make no sense or the source does not build.
            Unsupported: The source uses something that the emulator refuses by name.
            ToolchainError: There is no compiler.
        """
        del extra_sycl_cflags, build_directory, verbose, with_cuda, keep_intermediates, use_pch
        if sycl_sources or with_sycl:
            raise BuildFailed(f"load_inline({name!r}): SYCL sources are not CUDA; give cuda_sources instead.")
        flags = (extra_cflags, extra_cuda_cflags, extra_include_paths)
        check_functions(name, functions, cpp_sources, cuda_sources, flags=flags, linked=extra_ldflags)
        check_includes(name, cuda_sources, flags)
        sources = InlineSources(
            name=_checked_name(name, is_python_module),
            cpp_sources=_texts(name, "cpp_sources", cpp_sources),
            cuda_sources=_texts(name, "cuda_sources", cuda_sources),
            functions=_functions(name, functions),
            extra_cflags=_texts(name, "extra_cflags", extra_cflags),
            extra_cuda_cflags=_texts(name, "extra_cuda_cflags", extra_cuda_cflags),
            extra_ldflags=_texts(name, "extra_ldflags", extra_ldflags),
            extra_include_paths=_paths(name, "extra_include_paths", extra_include_paths),
            no_implicit_headers=bool(no_implicit_headers),
            is_python_module=bool(is_python_module),
            with_pytorch_error_handling=bool(with_pytorch_error_handling),
        )
        return self._load(sources)

    def load(
        self,
        name: str,
        sources: str | Sequence[str],
        extra_cflags: Sequence[str] | None = None,
        extra_cuda_cflags: Sequence[str] | None = None,
        extra_sycl_cflags: Sequence[str] | None = None,
        extra_ldflags: Sequence[str] | None = None,
        extra_include_paths: str | Sequence[str] | None = None,
        build_directory: str | None = None,
        verbose: bool = False,
        with_cuda: bool | None = None,
        with_sycl: bool | None = None,
        is_python_module: bool = True,
        is_standalone: bool = False,
        keep_intermediates: bool = True,
    ) -> ModuleType | str:
        """Builds (or finds) an extension given as files, and loads it. The arguments are torch's.

        Returns:
            The module, or for ``is_python_module=False`` the loaded library's path.

        Raises:
            BuildFailed: A file cannot be read, the arguments make no sense or the source does not
                build.
            Unsupported: The source uses something that the emulator refuses by name.
            ToolchainError: There is no compiler.
        """
        del extra_sycl_cflags, build_directory, verbose, with_cuda, keep_intermediates
        if is_standalone or with_sycl:
            raise BuildFailed(f"load({name!r}): only extensions for Python can be loaded here.")
        paths = _paths(name, "sources", sources)
        files = tuple(_source_file(name, path) for path in paths)
        described = InlineSources(
            name=_checked_name(name, is_python_module),
            extra_cflags=_texts(name, "extra_cflags", extra_cflags),
            extra_cuda_cflags=_texts(name, "extra_cuda_cflags", extra_cuda_cflags),
            extra_ldflags=_texts(name, "extra_ldflags", extra_ldflags),
            extra_include_paths=_paths(name, "extra_include_paths", extra_include_paths),
            no_implicit_headers=True,
            is_python_module=bool(is_python_module),
            files=files,
        )
        return self._load(described)

    def _load(self, sources: InlineSources) -> ModuleType | str:
        key = build_key(sources, self._mode, self._compat)
        self.given[key] = sources
        library = self._cached.get(key) or self.built.get(key)
        if library is None or not library.is_file():
            if key in self.refused:
                raise BuildFailed(*self.refused[key], key)
            self._on_build("begin", sources.name)
            try:
                library = build_library(
                    sources, self._out_dir, self.locator, key, self._mode, compat=self._compat, headers=self._headers
                )
                self.built[key] = library
            except BuildFailed as failure:
                why = undeclared_functions(list(sources.functions or ()), sources.cpp_sources, sources.cuda_sources)
                told = f"{why}\n{failure.message}" if why else failure.message
                refusal = failed_build(told, failure.log, key)
                if refusal.key:
                    self.refused[key] = refusal.message, refusal.log
                raise refusal from None
            finally:
                self._on_build("end", sources.name)
        try:
            return _import(sources.name, library) if sources.is_python_module else _load_operators(library)
        except (ImportError, OSError) as error:
            if (missing := _CUDA_SYMBOL.search(str(error))) is None:
                raise
            raise Unsupported(_demangled(missing["symbol"]), self.locator.path, None, _REMEDY) from None


def _import(name: str, library: Path) -> ModuleType:
    """Imports a library as the module ``name``, even if another library of that name is loaded."""
    loader = importlib.machinery.ExtensionFileLoader(name, str(library))
    spec = importlib.util.spec_from_file_location(name, str(library), loader=loader)
    if spec is None or spec.loader is None:
        raise ImportError(f"{library} cannot be imported as a module", name=name, path=str(library))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _demangled(symbol: str) -> str:
    import torch

    return str(torch._C._demangle(symbol))


def _load_operators(library: Path) -> str:
    import torch

    operators: Any = torch.ops
    operators.load_library(str(library))
    return str(library)


def _checked_name(name: object, is_python_module: object) -> str:
    if not isinstance(name, str) or not name:
        raise BuildFailed(f"load_inline: name must be a non-empty string, got {name!r}.")
    if is_python_module and not name.isidentifier():
        raise BuildFailed(f"load_inline: name={name!r} must be a Python identifier to be imported as a module.")
    return name


def _texts(name: str, argument: str, given: object) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str):
        return (given,)
    if isinstance(given, Sequence) and all(isinstance(item, str) for item in given):
        return tuple(given)
    raise BuildFailed(f"load_inline({name!r}): {argument} must be a string or a list of strings, got {_kind(given)}.")


def _paths(name: str, argument: str, given: object) -> tuple[str, ...]:
    if isinstance(given, os.PathLike):
        given = [given]
    if isinstance(given, Sequence) and not isinstance(given, str):
        given = [os.fspath(item) if isinstance(item, os.PathLike) else item for item in given]
    return _texts(name, argument, given)


def _functions(name: str, given: object) -> dict[str, str] | None:
    """Returns the functions to bind with their docstrings, from any form that torch takes."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        functions = dict(given)
    elif isinstance(given, str):
        functions = {given: given}
    elif isinstance(given, Sequence):
        functions = {item if isinstance(item, str) else repr(item): item for item in given}
    else:
        raise BuildFailed(
            f"load_inline({name!r}): functions must be a name, a list of names or a dict of names to docstrings, "
            f"got {_kind(given)}."
        )
    for function, documentation in functions.items():
        if not isinstance(function, str) or not isinstance(documentation, str):
            raise BuildFailed(
                f"load_inline({name!r}): functions must hold strings, got {function!r}: {documentation!r}."
            )
        if not all(part.isidentifier() for part in function.removeprefix("::").split("::")):
            raise BuildFailed(
                f"load_inline({name!r}): functions must hold names of C++ functions declared in cpp_sources, such as "
                f"'forward'; got {function.strip()[:80]!r}."
            )
    return functions


def _kind(given: object) -> str:
    if isinstance(given, Sequence):
        wrong = next((type(item).__name__ for item in given if not isinstance(item, str)), "nothing")
        return f"a {type(given).__name__} holding {wrong}"
    return type(given).__name__


def _source_file(name: str, path: str) -> SourceFile:
    try:
        return SourceFile(Path(path), Path(path).read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError as error:
        raise BuildFailed(
            f"load({name!r}): the source file {path} cannot be read: {error.strerror}. A solution is one file: it "
            "writes that file itself, or uses load_inline."
        ) from error
