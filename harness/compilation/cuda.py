"""Builds CUDA source for a GPU with torch's own ``load_inline``, each build in its own folder.

torch guards a build folder with a lock file that outlives a killed process. So the harness never
shares or reuses a folder: it lies in the worker's private folder, and only the finished library
leaves it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import importlib.util
import inspect
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch.utils import cpp_extension

from harness import package
from harness.compilation.cache import FIGURES
from harness.compilation.cpp_runtime import runtime_flags
from harness.compilation.errors import BuildFailed, failed_build
from harness.compilation.functions import check_functions, undeclared_functions
from harness.compilation.includes import check_includes
from harness.compilation.lean_cuda import lean_arguments
from harness.compilation.nvcc import cuda_home, missing_nvcc
from harness.compilation.old_torch import compat_files, compat_flags, removed_names
from harness.compilation.ptxas import MAX_FIGURES_CHARACTERS, is_told
from harness.compilation.torch_headers import lean_files

#: torch's messages for a library that has not run any code yet: its build failed, or it lacks a
#: symbol that the stand-ins do not define. Those are in namespaces; ``_Z`` and a digit begin the name
#: of a function in none, which is the solution's own.
_NOT_LOADED = re.compile(r"Error building extension|undefined symbol: (?!_Z\d)")
#: The arguments of ``load_inline`` that decide which functions torch binds for Python.
_BINDING = ("functions", "cpp_sources", "cuda_sources")


#: Stands in for ninja, which waits for the other compilers after one has failed. The first line of
#: the pipe is ninja's process, the last one its exit status. Torch discards the
#: output of a build that succeeds, so this script also writes it to a file in the build folder.
#: Elsewhere, where torch asks for ninja's version, it writes none.
_NINJA = """\
#!/bin/sh
{{ sh -c 'echo $$; exec "$0" "$@" 2>&1' {ninja} "$@"; echo $?; }} | {{
    if [ -f build.ninja ]; then exec 3>{said}; else exec 3>/dev/null; fi
    IFS= read -r process
    IFS= read -r line
    while IFS= read -r next; do
        printf '%s\\n' "$line"
        printf '%s\\n' "$line" >&3
        case $line in FAILED:*) kill "$process" 2>/dev/null ;; esac
        line=$next
    done
    exit "$line"
}}
"""


#: The file that keeps what ninja said, in the build folder.
_SAID = "ninja.txt"
#: Makes nvcc tell the registers, the spills and the shared memory of each kernel. The code is the same.
_TELLING = ("-Xptxas", "-v")


class CudaLoader:
    """Replaces ``load_inline`` and ``load`` for one solution.

    Args:
        solution: The solution file, for messages.
        cached: The libraries that exist already, by build key.
        out_dir: The folder for builds and new libraries.
        on_build: A callback around each compilation. It receives ``"begin"`` or ``"end"``, and the
            extension's name.
        capability: The GPU's compute capability. The compiler generates code for it alone.
        compat: Whether code for an older torch may build.
        refused: The message and log of each build that a compiler has already refused, by build
            key.

    Attributes:
        built: The libraries that this loader has built, by build key.
        refused: The message and log of each refused build, known or new, by build key.
        plain: The reason why a library was built without stand-ins for torch's headers, by build
            key; empty if it was built with them.
        loaded: All libraries that the solution has loaded, new and cached.
    """

    def __init__(
        self,
        solution: Path,
        cached: Mapping[str, Path],
        out_dir: Path,
        on_build: Callable[[str, str], None],
        *,
        capability: tuple[int, int],
        compat: bool = False,
        refused: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    ):
        self.built: dict[str, Path] = {}
        self.plain: dict[str, str] = {}
        self.loaded: list[Path] = []
        self._solution = solution
        self._cached = cached
        self._out_dir = out_dir
        self._on_build = on_build
        self._capability = capability
        self._compat = compat
        self.refused = dict(refused)
        self._torch_load_inline = cpp_extension.load_inline
        self._torch_load = cpp_extension.load

    def load_inline(self, *positional: Any, **options: Any) -> Any:
        """Replaces torch's ``load_inline``, with libraries from the cache if possible."""
        arguments = inspect.signature(self._torch_load_inline).bind(*positional, **options).arguments
        functions, cpp, cuda = map(arguments.get, _BINDING)
        flags = tuple(map(arguments.get, ("extra_cflags", "extra_cuda_cflags", "extra_include_paths")))
        check_functions(arguments["name"], functions, cpp, cuda, flags=flags, linked=arguments.get("extra_ldflags"))
        check_includes(arguments["name"], cuda, flags)
        return self._load(self._key(arguments), self._torch_load_inline, arguments)

    def load(self, *positional: Any, **options: Any) -> Any:
        """Replaces torch's ``load``. The build key covers the content of the source files."""
        arguments = inspect.signature(self._torch_load).bind(*positional, **options).arguments
        sources = arguments["sources"]
        files = [sources] if isinstance(sources, str) else list(sources)
        texts = [Path(file).read_text(encoding="utf-8", errors="replace") for file in files]
        return self._load(self._key({**arguments, "texts": texts}), self._torch_load, arguments)

    def _load(self, key: str, build: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        name = arguments["name"]
        is_module = arguments.get("is_python_module", True)
        known = self.built.get(key) or self._cached.get(key)
        if known is not None and known.is_file():  # the cache may have been emptied meanwhile
            self.loaded.append(known)
            return _open(name, known, is_module)
        if key in self.refused:
            raise BuildFailed(*self.refused[key], key)
        folder = self._out_dir / key[:16]
        folder.mkdir(parents=True, exist_ok=True)
        self._prepare_environment(name)
        arguments.update(build_directory=str(folder), verbose=False)
        lean = folder / "lean"
        # This comes before the build, because torch adds its bindings to a list of sources.
        why = undeclared_functions(*map(arguments.get, _BINDING))
        self._on_build("begin", name)
        try:
            try:
                result, self.plain[key] = self._built_lean(build, arguments, lean)
                if self.plain[key]:
                    result = self._built(build, arguments)
            except (RuntimeError, OSError, ValueError, TypeError) as error:
                failure = self._failed(name, error, folder, why, key)
                if failure.key:
                    self.refused[key] = failure.message, failure.log
                raise failure from error
            library = next((folder if self.plain[key] else lean).glob("*.so"), None)
            if library is not None:
                kept = self._out_dir / f"{key}.so"
                shutil.copyfile(library, kept)
                _keep_figures(library.parent / _SAID, kept)
                self.built[key] = kept
                self.loaded.append(kept)
        finally:
            self._on_build("end", name)
        return result

    def _built_lean(self, build: Callable[..., Any], arguments: dict[str, Any], folder: Path) -> tuple[Any, str]:
        """Builds with stand-ins for torch's headers.

        If that fails, the plain build decides, and the author sees its errors.

        Returns:
            The result of ``load_inline`` and an empty reason; or None and the reason why there is
            no result.
        """
        if build is not self._torch_load_inline:
            return None, "its files may include others"
        try:
            folder.mkdir()
            chosen, why = lean_arguments(arguments, folder)
        except OSError as error:
            return None, str(error)
        if chosen is None:
            return None, why
        try:
            return self._built(build, chosen), ""
        except (RuntimeError, OSError, ImportError) as error:
            if not _NOT_LOADED.search(str(error)):
                raise
            return None, "with stand-ins it does not build"

    def _built(self, build: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Builds; with ``compat`` a second time as code for an older torch, if the compiler misses that.

        After a failed build the method restores torch's record of builds. So the next build gets
        the same name.
        """
        linked = [*(arguments.get("extra_ldflags") or ()), *_runtime_flags()]
        told = [*(arguments.get("extra_cuda_cflags") or ()), *_TELLING]
        arguments = {**arguments, "extra_ldflags": linked, "extra_cuda_cflags": told}
        versions: dict[str, Any] = cpp_extension.JIT_EXTENSION_VERSIONER.entries
        before = versions.get(arguments["name"])
        copied = {name: list(value) if isinstance(value, list) else value for name, value in arguments.items()}
        try:
            return build(**copied)
        except (RuntimeError, OSError, ImportError) as error:
            versions.pop(arguments["name"], None)
            if before is not None:
                versions[arguments["name"]] = before
            if not self._compat or not removed_names(_compiler_log(error)):
                raise
        further = [shlex.quote(flag) for flag in compat_flags()]
        flags = {name: [*(arguments.get(name) or ()), *further] for name in ("extra_cflags", "extra_cuda_cflags")}
        return build(**{**arguments, **flags})

    def _prepare_environment(self, name: str) -> None:
        """Points torch at nvcc and at the GPU's own architecture."""
        home = cuda_home()
        if home is None:
            raise BuildFailed(f"{name}: {missing_nvcc()}")
        os.environ["CUDA_HOME"] = str(home)
        cpp_extension.CUDA_HOME = str(home)
        major, minor = self._capability
        os.environ["TORCH_CUDA_ARCH_LIST"] = f"{major}.{minor}"
        # The folder of the interpreter holds ninja.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        own = self._out_dir / "bin"
        ninja = shutil.which("ninja", path=path)
        if ninja is not None and Path(ninja).parent != own:
            own.mkdir(exist_ok=True)
            (own / "ninja").write_text(_NINJA.format(ninja=shlex.quote(ninja), said=_SAID), encoding="utf-8")
            (own / "ninja").chmod(0o755)
        os.environ["PATH"] = os.pathsep.join([str(own), path])
        self._link_runtime(home)

    def _link_runtime(self, home: Path) -> None:
        """Provides a ``libcudart.so`` for the linker if the toolkit has only a versioned one.

        The toolkit from PyPI is of that kind.
        """
        folders = [home / "lib64", home / "lib"]
        if any((folder / "libcudart.so").exists() for folder in folders):
            return
        versioned = next((path for folder in folders for path in sorted(folder.glob("libcudart.so.*"))), None)
        if versioned is None:
            return
        links = self._out_dir / "lib"
        links.mkdir(exist_ok=True)
        if not (links / "libcudart.so").exists():
            (links / "libcudart.so").symlink_to(versioned)
        os.environ["LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(links), os.environ.get("LIBRARY_PATH")]))

    def _key(self, arguments: Mapping[str, Any]) -> str:
        """Returns the build key, a digest of sources, flags, versions and architecture."""
        told = {
            "arguments": {key: repr(value) for key, value in sorted(arguments.items()) if key != "verbose"},
            "versions": [package.VERSION, torch.__version__, torch.version.cuda, str(cuda_home())],
            "stand-ins": [hashlib.sha256(file.read_bytes()).hexdigest() for file in lean_files()],
            "runtime": _runtime_flags(),
            "device": list(self._capability),
            **(
                {"compat": [hashlib.sha256(file.read_bytes()).hexdigest() for file in compat_files()]}
                if self._compat
                else {}
            ),
            "mode": "cuda",
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def _failed(self, name: str, error: Exception, folder: Path, why: str, key: str) -> BuildFailed:
        if not isinstance(getattr(error.__cause__, "stdout", None), bytes):
            key = ""  # no compiler refused: a library that needs a GPU at once, a full disk
        log = "".join(line for line in _compiler_log(error).splitlines(keepends=True) if not is_told(line))
        lines = [line for line in log.splitlines() if " error" in line or "error:" in line or "fatal" in line]
        solution = self._solution.read_text(encoding="utf-8-sig", errors="replace").splitlines()
        placed = [in_solution(line, folder, self._solution.name, solution) for line in lines[:8]]
        telling = "\n".join(placed) or str(error).strip()[:2000]
        return failed_build("\n".join(filter(None, [why, f"{name} does not build:", telling])), log, key)


def _keep_figures(said: Path, library: Path) -> None:
    """Keeps what ptxas told of a library's kernels beside the library; nothing if it told nothing."""
    with contextlib.suppress(OSError):
        lines = said.read_text(encoding="utf-8", errors="replace").splitlines()
        told = "\n".join(line for line in lines if is_told(line))
        if told:
            library.with_suffix(FIGURES).write_text(told[:MAX_FIGURES_CHARACTERS], encoding="utf-8")


def _runtime_flags() -> tuple[str, ...]:
    """Returns what links torch's C++ runtime, by the compiler with which torch links."""
    compiler: str = cpp_extension.get_cxx_compiler()  # type: ignore[no-untyped-call]
    return runtime_flags(compiler.split())


def _compiler_log(error: Exception) -> str:
    """Returns the output of the compiler that torch ran; the error's message if it ran none."""
    output = getattr(error.__cause__, "stdout", None)
    return output.decode(errors="replace") if isinstance(output, bytes) else str(error)


def in_solution(line: str, folder: Path, name: str, solution: Sequence[str]) -> str:
    """Replaces the place in a compiler's error line by the place in the solution.

    The compiler names files that torch wrote.

    Args:
        line: The error line, such as ``/folder/cuda.cu(24): error: ...`` or
            ``/folder/main.cpp:24:3: error: ...``.
        folder: The build folder.
        name: The solution's file name.
        solution: The solution's lines.

    Returns:
        The new line. The line as it was if it names no file of the folder, or if the solution does
        not contain the source line.
    """
    match = re.match(rf"{re.escape(str(folder))}/(\S+?)(?:\((\d+)\)|:(\d+)(?::\d+)?)(?=:)", line)
    if match is None or not (folder / match[1]).is_file():
        return line
    written = (folder / match[1]).read_text(encoding="utf-8", errors="replace").splitlines()
    number = int(match[2] or match[3])
    if not 0 < number <= len(written):
        return line
    same = [at for at, text in enumerate(solution) if text.rstrip() == written[number - 1].rstrip()]
    if not same:
        return line

    def likeness(at: int) -> int:
        """Counts the lines around that agree, since several kernels may contain the same line."""
        offsets = [offset for offset in range(-5, 6) if 0 <= at + offset < len(solution)]
        around = [offset for offset in offsets if 0 <= number - 1 + offset < len(written)]
        return sum(solution[at + offset].rstrip() == written[number - 1 + offset].rstrip() for offset in around)

    place = max(same, key=likeness)
    return f"{name}:{place + 1}{line[match.end() :]}\n    {solution[place].strip()}"


def _open(name: str, library: Path, is_module: bool) -> Any:
    """Loads a finished library as ``load_inline`` would have."""
    if not is_module:
        torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
        return str(library)
    loader = importlib.machinery.ExtensionFileLoader(name, str(library))
    spec = importlib.util.spec_from_file_location(name, library, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
