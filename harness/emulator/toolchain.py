"""Builds the emulator's own libraries once, and each solution's CUDA into a Python library.

Each result appears under its name at once and complete. So two processes can build the same thing,
and a killed one leaves nothing to clean up.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import package
from harness.compilation.errors import BuildFailed, Unsupported
from harness.compilation.old_torch import compat_files, compat_flags, removed_names
from harness.compilation.torch_headers import LEAN, lean_files, needs_real_headers, uses_torch_headers
from harness.emulator import header_words
from harness.emulator.compiler import (
    EMULATOR,
    INCLUDE,
    INCLUDE_TORCH,
    RUNTIME,
    Compiler,
    Mode,
    TorchPaths,
    find_compiler,
    python_include,
    torch_paths,
)
from harness.emulator.declarations import DECLARED, only_declares
from harness.emulator.diagnostics import SourceLocator, build_error, needs_permission
from harness.emulator.flags import TORCH_DEFINITIONS, cuda_flags, host_flags, linker_flags
from harness.emulator.precompiled import (
    HEADERS,
    declared,
    descriptors,
    drop_older_headers,
    inclusion,
    precompile,
    prelude,
    select,
)
from harness.emulator.processes import FinishedProcess, run_together
from harness.emulator.rewrite import ASM_WORDS
from harness.emulator.sources import PRELUDE, InlineSources, SourceFile, Unit, is_toolkit, units
from harness.errors import ToolchainError
from harness.system.scratch import BUILDING_PREFIX, scratch_folder

__all__ = [
    "Compiler",
    "InlineSources",
    "Mode",
    "RuntimeLibraries",
    "SourceFile",
    "build_key",
    "build_library",
    "build_runtime",
    "find_compiler",
]

_LOOPS = frozenset({"for", "while", "do", "goto"})
_REGISTERS = frozenset({"STABLE_TORCH_LIBRARY", "STABLE_TORCH_LIBRARY_IMPL"})
_WRAPPED = ("_ZdlPv", "_ZdlPvm", "_ZdaPv", "_ZdaPvm", "memcpy", "memmove", "memset")
_OUT_OF_SPACE = "No space left on device"
#: The most parts of the runtime that compile side by side.
MOST_PARTS = 8
#: The time to wait for another process that builds the runtime. The build takes up to a minute on two idle
#: processors, and four where others keep them busy.
TURN_LIMIT_S, TURN_PAUSE_S = 600.0, 0.1


@dataclass(frozen=True)
class RuntimeLibraries:
    """The emulator's two shared libraries.

    Attributes:
        core: ``libcuemu.so``: threads, blocks, shared memory, reports.
        torch: ``libcuemu_torch.so``: the checking allocator, and what a CPU build of torch lacks.
    """

    core: Path
    torch: Path

    @property
    def headers(self) -> Path:
        """The folder of precompiled headers, which need not exist."""
        return self.core.with_name(HEADERS)


def build_runtime(cache_dir: Path, with_headers: bool = False) -> RuntimeLibraries:
    """Builds the emulator's libraries, unless they exist already.

    Args:
        cache_dir: The folder for builds. The function creates it if it is missing.
        with_headers: Whether to precompile headers, too, which makes all later builds faster.

    Returns:
        The libraries in a folder of their own under ``cache_dir``.

    Raises:
        ToolchainError: There is no compiler, or the emulator's own sources do not compile with it.
    """
    compiler, torch = find_compiler(), torch_paths()
    target = cache_dir / f"runtime-{_runtime_digest(compiler, torch)[:16]}"
    libraries = RuntimeLibraries(target / "libcuemu.so", target / "libcuemu_torch.so")

    def lacks_libraries() -> bool:
        return not (libraries.core.is_file() and libraries.torch.is_file())

    def lacks_headers() -> bool:
        return with_headers and not compiler.is_clang and not libraries.headers.is_dir()

    if not lacks_libraries() and not lacks_headers():
        return libraries
    try:
        with _turn(cache_dir), scratch_folder(BUILDING_PREFIX, cache_dir) as scratch, ThreadPoolExecutor(1) as beside:
            # Another process may have built them meanwhile.
            precompiled = beside.submit(precompile, compiler, torch, scratch) if lacks_headers() else None
            if lacks_libraries():
                _compile_runtime(compiler, torch, scratch)
                _publish_folder(scratch / "built", target, libraries.torch)
            if precompiled is not None:
                drop_older_headers(cache_dir)
                _publish_folder(precompiled.result(), libraries.headers, libraries.headers)
    except OSError as error:
        raise ToolchainError(f"The emulator could not be built in {cache_dir}: {error}.") from error
    return libraries


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Lets one process at a time run a block, for a folder.

    A process waits at most ``TURN_LIMIT_S``, and not at all if the folder cannot be locked. Then
    several processes build the same libraries.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        patience = time.monotonic() + TURN_LIMIT_S
        while not _locked(descriptor) and time.monotonic() < patience:
            time.sleep(TURN_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Tries to take the lock. Also succeeds on a file system without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _runtime_commands(
    compiler: Compiler, torch: TorchPaths, built: Path, parts: int
) -> tuple[list[list[str]], list[list[str]]]:
    """Returns the commands that compile the runtime in so many parts, and those that link its libraries in turn."""
    common = [*compiler.command, *compiler.common_flags(), "-O2", "-fno-semantic-interposition"]
    includes = [f"-I{INCLUDE}", f"-I{RUNTIME}"]
    sources = sorted([*RUNTIME.glob("*.cpp"), *RUNTIME.glob("*.S")], key=lambda path: (-path.stat().st_size, path.name))
    core = [path for path in sources if not path.name.startswith("torch_")]
    for_torch = [path for path in sources if path.name.startswith("torch_")]
    theirs = [*includes, *torch.include_flags, "-isystem", str(python_include())]
    compiled = [
        [*common, "-r", *includes, *map(str, core[part::parts]), "-o", str(built / f"core{part}.o")]
        for part in range(parts)
    ]
    compiled += [[*common, "-r", *theirs, str(path), "-o", str(built / f"{path.stem}.o")] for path in for_torch]
    linked = [
        [
            *(*common, "-shared", "-Wl,-soname,libcuemu.so"),
            *(str(built / f"core{part}.o") for part in range(parts)),
            *("-o", str(built / "libcuemu.so"), "-ldl", *compiler.link_flags),
        ],
        [
            *(*common, "-shared", "-Wl,-soname,libcuemu_torch.so"),
            *(str(built / f"{path.stem}.o") for path in for_torch),
            *("-o", str(built / "libcuemu_torch.so"), f"-L{built}", "-lcuemu", "-Wl,-rpath,$ORIGIN"),
            *(f"-L{torch.libraries}", "-lc10", "-ltorch_cpu", "-ltorch_python", "-ldl", *compiler.link_flags),
        ],
    ]
    return compiled, linked


def _compile_runtime(compiler: Compiler, torch: TorchPaths, scratch: Path) -> None:
    built = scratch / "built"
    built.mkdir()
    compiled, linked = _runtime_commands(compiler, torch, built, min(MOST_PARTS, os.cpu_count() or 1))
    # The second library links to the first.
    for commands in (compiled, *([command] for command in linked)):
        for finished in run_together(commands, scratch, lambda index, failed: True):
            if finished.status != 0 and not finished.was_ended:
                raise _uncompiled(compiler, scratch, finished.output)
    for part in built.glob("*.o"):
        part.unlink()


def _uncompiled(compiler: Compiler, scratch: Path, output: str) -> ToolchainError:
    """Returns the error that says why the runtime does not compile."""
    if _OUT_OF_SPACE in output or shutil.disk_usage(scratch).free < 1 << 20:
        return ToolchainError(f"The disk is full: {scratch.parent} has no room for the emulator's runtime.")
    telling = "\n".join(output.strip().splitlines()[-20:])
    return ToolchainError(
        f"The emulator's runtime does not compile with {shlex.join(compiler.command)} ({compiler.version}):\n"
        f"{telling}\nTry another compiler through CXX, or report this."
    )


def _publish_folder(built: Path, target: Path, proof: Path) -> None:
    try:
        built.rename(target)
    except OSError:
        # Another process was first. Its folder also appeared by a rename, so it is complete.
        if not proof.exists():
            raise


@functools.cache
def _runtime_digest(compiler: Compiler, torch: TorchPaths) -> str:
    files = [path for folder in (RUNTIME, INCLUDE, DECLARED) for path in folder.rglob("*") if path.is_file()]
    files += [*lean_files(), EMULATOR / "precompiled.py", EMULATOR / "header_words.py"]
    # Not the compiler's own path: a wrapper, such as ccache's, makes the same libraries. Nor the harness's: another
    # installation of the same files does, too.
    compiled, linked = _runtime_commands(compiler, torch, Path("built"), 1)
    commands = [" ".join(words[1:]) for words in (*compiled, *linked)]
    commands = [command.replace(str(EMULATOR), "") for command in commands]
    return _digest(_files_digest(files), compiler.version, torch.version, *commands)


def build_key(sources: InlineSources, mode: Mode, compat: bool = False) -> str:
    """Computes a build's key from everything that decides its result.

    Args:
        sources: The build's arguments.
        mode: How kernels will run.
        compat: Whether code for an older torch may build.

    Returns:
        64 hexadecimal digits.

    Raises:
        ToolchainError: There is no compiler.
    """
    described = asdict(sources)
    described["files"] = [[str(file.path), file.text] for file in sources.files]
    described["functions"] = None if sources.functions is None else list(sources.functions.items())
    compiler = find_compiler()
    return _digest(
        json.dumps(described, sort_keys=True),
        mode,
        shlex.join(compiler.command),
        compiler.version,
        torch_paths().version,
        emulator_digest(),
        package.VERSION,
        *(["compat"] if compat else []),
    )


@functools.cache
def emulator_digest() -> str:
    """Returns a digest of the emulator's own sources.

    A change in any of them makes every build a new one.
    """
    suffixes = (".py", ".h", ".cpp", ".S", ".cuh", "")
    files = [path for path in EMULATOR.rglob("*") if path.is_file() and path.suffix in suffixes]
    return _files_digest([*files, *lean_files(), *compat_files()])


def _files_digest(files: Iterable[Path]) -> str:
    parts: list[str] = []
    for path in sorted(files):
        parts.extend([path.relative_to(EMULATOR.parent).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()])
    return _digest(*parts)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", errors="surrogatepass")).hexdigest()


def build_library(
    sources: InlineSources,
    out_dir: Path,
    locate: SourceLocator,
    key: str | None = None,
    mode: Mode = "fast",
    *,
    compat: bool = False,
    headers: Path | None = None,
) -> Path:
    """Compiles and links a solution's sources.

    Args:
        sources: The build's arguments.
        out_dir: The folder for the library. The function creates it if it is missing.
        locate: The locator of the solution's lines, for the messages.
        key: The library's name without its suffix; None to compute it.
        mode: How kernels will run. With ``check`` every access calls the runtime.
        compat: Whether code for an older torch may build.
        headers: The folder of precompiled headers; None to do without.

    Returns:
        ``out_dir/<key>.so``.

    Raises:
        BuildFailed: The source does not compile or link.
        Unsupported: The source uses something that the emulator refuses by name.
        ToolchainError: The compiler is missing or the disk is full.
    """
    target = out_dir / f"{key or build_key(sources, mode, compat)}.so"
    compiled = units(sources, locate)
    if not compiled:
        raise BuildFailed(f"load_inline({sources.name!r}): no source given: cpp_sources and cuda_sources are empty.")
    try:
        with scratch_folder(BUILDING_PREFIX, out_dir) as scratch:
            build = _Build(sources, locate, scratch, mode=mode, compat=compat, headers=headers)
            build.link(build.compile(compiled)).replace(target)
    except OSError as error:
        raise ToolchainError(f"A build in {out_dir} failed: {error}.") from error
    return target


class _Build:
    """One build in a scratch folder."""

    def __init__(
        self,
        sources: InlineSources,
        locate: SourceLocator,
        scratch: Path,
        *,
        mode: Mode,
        compat: bool,
        headers: Path | None,
    ):
        self._headers = headers
        self._mode = mode
        self._compat = compat
        self._sources = sources
        self._locate = locate
        self._scratch = scratch
        self._compiler = find_compiler()
        self._torch = torch_paths()

    def compile(self, compiled: Sequence[Unit]) -> list[Path]:
        """Compiles units side by side, and with ``compat`` failed ones again as code for an older torch.

        Returns:
            The units' object files.
        """
        further: list[str] = []
        failed, told = self._attempt(compiled, further)
        if self._compat and any(removed_names(result.output) for result in told):
            further = compat_flags()
            failed, told = self._attempt(failed, further)
        if told and all(needs_permission(result.output) for result in told):
            _, told = self._attempt(failed, [*further, "-fpermissive"])
        if told:
            self._raise(told)
        return [self._scratch / f"{unit.file_name}.o" for unit in compiled]

    def _attempt(self, compiled: Sequence[Unit], further: Sequence[str]) -> tuple[list[Unit], list[FinishedProcess]]:
        """Compiles units side by side, and failed ones again with torch's own headers.

        No compiler message tells whether the stand-ins for torch's headers or the author are at
        fault. So the second build decides, and the author sees its errors. A failure that decides
        ends the other units' compilers.

        Returns:
            The failed units, and the results whose errors the author sees.
        """
        real = [needs_real_headers(unit.text, unit.names) or not uses_torch_headers(unit.text) for unit in compiled]
        results = self._run(compiled, real, further)
        failed = [at for at, result in enumerate(results) if result.status != 0 and not result.was_ended]
        for_sure = [at for at in failed if real[at] or self._is_final(results[at], compiled[at])]
        if failed and not for_sure:
            repeated = self._run([compiled[at] for at in failed], [True] * len(failed), further)
            for at, result in zip(failed, repeated, strict=True):
                results[at] = result
        left = [unit for unit, result in zip(compiled, results, strict=True) if result.status != 0]
        decisive = [results[at] for at in for_sure or failed]
        return left, [result for result in decisive if result.status != 0 and not result.was_ended]

    def _run(self, compiled: Sequence[Unit], real: Sequence[bool], further: Sequence[str]) -> list[FinishedProcess]:
        commands = [self._command(unit, is_real, further) for unit, is_real in zip(compiled, real, strict=True)]
        return run_together(
            commands,
            self._scratch,
            lambda at, failed: real[at] or self._is_final(failed, compiled[at]),
            descriptors=descriptors(self._headers),
        )

    def _is_final(self, result: FinishedProcess, unit: Unit) -> bool:
        """Tells whether other headers cannot help: a kill, a full disk, what none of them has or a flag permits."""
        if result.was_killed or _OUT_OF_SPACE in result.output or needs_permission(result.output):
            return True
        if self._compat and removed_names(result.output):
            return True
        if isinstance(build_error(result.output, self._locate, self._own_files()), Unsupported):
            return True
        words = header_words.read(self._headers) if unit.is_cuda else None
        return words is not None and not header_words.could_mend(result.output, unit.text, words)

    def _own_files(self) -> list[str]:
        return [str(file.path) for file in self._sources.files]

    def _raise(self, results: Sequence[FinishedProcess]) -> None:
        told = [result.output for result in results if result.output.strip()]
        if any(result.was_killed for result in results):
            told.append(f"error: Killed signal terminated program {Path(self._compiler.command[0]).name}")
        log = "\n".join(told)
        if _OUT_OF_SPACE in log:
            raise ToolchainError(f"The disk is full: {self._scratch.parent} has no room for a build.")
        raise build_error(log, self._locate, self._own_files())

    def _command(self, unit: Unit, real: bool, further: Sequence[str]) -> list[str]:
        source = self._scratch / unit.file_name
        source.write_text(unit.text, encoding="utf-8", errors="surrogateescape")
        arguments = [*self._compiler.command, *self._compiler.common_flags(), *self._optimisation(unit)]
        if unit.folder is not None:
            arguments += ["-iquote", str(unit.folder)]
        arguments += [f"-I{INCLUDE}", f"-I{INCLUDE_TORCH / 'cuda'}"]
        # Of macros g++ itself knows whether a precompiled header names them; a header may change anything.
        headers = None if any(flag.startswith("-include") for flag in self._flags(unit)) else self._headers
        begun: list[str] = []
        if not real and not unit.is_cuda and only_declares(unit.text):
            arguments += declared(headers)
        elif not real and uses_torch_headers(unit.text):
            folder = self._scratch / f"{unit.file_name}.select"
            folder.mkdir(exist_ok=True)
            select(unit, folder, self._torch)
            arguments += [f"-I{folder}", f"-I{LEAN}"]
            begun = inclusion(unit, self._mode, headers, folder)
            arguments += begun
        arguments += self._torch.include_flags
        if "Python" in unit.names or uses_torch_headers(unit.text) or "pybind11" in unit.names:
            arguments += ["-isystem", str(python_include())]
        # Where the emulator lacks a header, that of a CUDA toolkit is none that g++ can read.
        arguments += [f"-I{path}" for path in self._sources.extra_include_paths if not is_toolkit(path)]
        arguments += [f"-DTORCH_EXTENSION_NAME={self._sources.name}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
        if unit.is_cuda:
            arguments += TORCH_DEFINITIONS
            arguments += ["-include", PRELUDE] if begun else prelude(self._mode, headers)
            # Under nvcc torch's headers include Thrust's complex numbers, and those include this.
            arguments += ["-include", "cfloat"] if uses_torch_headers(unit.text) else []
            if ASM_WORDS & set(unit.names):
                arguments += ["-include", "cuemu/ptx.h"]
        arguments += [*self._flags(unit), *further]
        return [*arguments, "-x", "c++", "-c", str(source), "-o", f"{source}.o"]

    def _flags(self, unit: Unit) -> list[str]:
        """Returns the author's own flags for a unit."""
        return cuda_flags(self._sources.extra_cuda_cflags) if unit.is_cuda else host_flags(self._sources.extra_cflags)

    def _optimisation(self, unit: Unit) -> list[str]:
        if unit.is_cuda:
            return self._compiler.checked_flags() if self._mode == "check" else self._compiler.fast_flags()
        # A C++ unit without a loop (declarations and bindings) runs as fast at -O0 and compiles
        # sooner. So does one that registers operators of the stable ABI: its loops are over sizes.
        return ["-O2" if unit.names & _LOOPS and not unit.names & _REGISTERS else "-O0"]

    def link(self, objects: Sequence[Path]) -> Path:
        """Links object files into a shared library.

        Returns:
            The library, still in the scratch folder.
        """
        built = self._scratch / "library.so"
        flags = host_flags([*self._sources.extra_cflags, *self._sources.extra_cuda_cflags])
        command = [*self._compiler.command, "-shared", "-pthread"]
        if "-fopenmp" in (*flags, *cuda_flags(self._sources.extra_cuda_cflags)):
            command.append("-fopenmp")
        # A second build of one name in the same process must not bind to the first one's symbols.
        if self._mode == "check":  # the runtime follows a kernel's heap, and what it copies and fills
            command += [f"-Wl,--wrap={name}" for name in _WRAPPED]
        command += ["-Wl,-Bsymbolic", *map(str, objects), "-o", str(built), f"-L{self._torch.libraries}"]
        # The process that loads it has loaded the runtime for all to see, and so torch's libraries,
        # which take the linker longer to read than all else.
        command += [*self._compiler.link_flags, *linker_flags(self._sources.extra_ldflags)]
        (finished,) = run_together([command], self._scratch)
        if finished.status != 0:
            self._raise([finished])
        return built
