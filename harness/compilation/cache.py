"""The build cache: libraries that candidates built, and refusals of compilers. Only the judge writes to it.

The path of a library is ``builds/<solution digest>/<build key>.so``, so one candidate never gets
another's build. The key covers sources, flags, compiler, torch, harness version, device and mode. A
file appears by rename, complete or not at all. So a killed build leaves nothing behind that could
block or damage the next one, and two processes can build the same library at once. A refusal that
depends on the source alone is ``<build key>.json`` beside them: its message and its log.
``<build key>.ptxas`` has what nvcc told of the kernels that it built for a GPU.

The cache is bounded. It keeps at most ``MAX_SOLUTION_BYTES`` for each solution. If all solutions
together exceed ``MAX_TOTAL_BYTES``, the cache removes the least recently used solutions, each as a
whole, until the rest fits.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from harness.compilation.ptxas import MAX_FIGURES_CHARACTERS, compiled_kernels
from harness.records.kernels import CompiledKernel
from harness.system.scratch import REMOVED_PREFIX, scratch_folder

MAX_LIBRARY_BYTES = 256 << 20
#: Limits for one solution over all runs. An honest solution builds a few dozen libraries of a few
#: MB.
MAX_LIBRARIES, MAX_SOLUTION_BYTES = 256, 512 << 20
#: The limit for all solutions together. Thousands of honest ones fit.
MAX_TOTAL_BYTES = 8 << 30
#: The suffix of nvcc's figures of a library, and their most bytes.
FIGURES, MAX_FIGURES_BYTES = ".ptxas", 4 * MAX_FIGURES_CHARACTERS
#: How often to write a library whose folder another process removes at the same time.
_ATTEMPTS = 5
_PIECE_BYTES = 1 << 20
_KEY = re.compile(r"[0-9a-f]{16,64}")


class BuildCache:
    """The folder of built libraries.

    Args:
        folder: The folder's path. The cache creates it with the first library.
        max_bytes: The limit for all libraries together.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_TOTAL_BYTES):
        self._folder = folder
        self._max_bytes = max_bytes

    def libraries(self, digest: str) -> dict[str, Path]:
        """Returns a solution's libraries by build key, and marks them as used now."""
        folder = self._folder / digest
        if not folder.is_dir():
            return {}
        with contextlib.suppress(OSError):  # the folder has gone or is read-only
            os.utime(folder)
        try:
            return {path.stem: path for path in folder.glob("*.so") if _KEY.fullmatch(path.stem)}
        except FileNotFoundError:  # another process has removed the folder meanwhile
            return {}

    def keep(self, digest: str, key: str, built: Path) -> bool:
        """Copies a library that a worker has built, or nvcc's figures of it, into the cache.

        The judge does not trust the worker. It takes only a plain file of a plausible size under a
        well-formed key, while the solution's limits leave room for it. It follows no link, neither for
        the file nor for its folder. A link could lead to a file that only the judge can read.

        Args:
            digest: The solution's digest.
            key: The build key.
            built: The file in the worker's folder.

        Returns:
            Whether the cache took the file.
        """
        if not _KEY.fullmatch(key):
            return False
        try:
            descriptor = _open_without_links(built)
        except (OSError, ValueError):  # a name with a NUL character is not a path
            return False
        status = os.fstat(descriptor)
        suffix, most = (FIGURES, MAX_FIGURES_BYTES) if built.suffix == FIGURES else (".so", MAX_LIBRARY_BYTES)
        plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        folder = self._folder / digest
        if not plain or not 0 < status.st_size <= most or not _has_room(folder, key, status.st_size):
            os.close(descriptor)
            return False
        with os.fdopen(descriptor, "rb") as source:
            for _ in range(_ATTEMPTS):
                with contextlib.suppress(FileNotFoundError, FileExistsError):  # another process removed the folder
                    _write(source, status.st_size, folder / f"{key}{suffix}")
                    self._trim(digest)
                    return True
        return False

    def kernels(self, digest: str) -> tuple[CompiledKernel, ...]:
        """Returns nvcc's figures of the kernels in a solution's libraries; none for what it did not tell.

        If other compilers, flags or GPUs built the solution, too, the figures of all its builds count.
        """
        found: list[CompiledKernel] = []
        for path in sorted((self._folder / digest).glob(f"*{FIGURES}")):
            with contextlib.suppress(OSError):  # another process removed it
                found += compiled_kernels(path.read_text(encoding="utf-8", errors="replace"), None)
        return tuple(found)

    def refusals(self, digest: str) -> dict[str, tuple[str, str]]:
        """Returns the message and the log of each refused build of a solution, by build key."""
        found = {}
        for path in (self._folder / digest).glob("*.json"):
            with contextlib.suppress(OSError, ValueError, TypeError):  # another process removed it, or it is damaged
                message, log = json.loads(path.read_text(encoding="utf-8"))
                found[path.stem] = str(message), str(log)
        return found

    def keep_refusal(self, digest: str, key: str, message: str, log: str) -> bool:
        """Writes a compiler's refusal, under the limits for libraries; returns whether the cache took it."""
        told = json.dumps([message, log]).encode()
        folder = self._folder / digest
        if not _KEY.fullmatch(key) or not _has_room(folder, key, len(told)):
            return False
        _write(io.BytesIO(told), len(told), folder / f"{key}.json")
        self._trim(digest)
        return True

    def _trim(self, kept: str) -> None:
        """Removes the least recently used solutions while all together exceed the limit.

        Only one process at a time does this.
        """
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # On a file system without locks two processes may remove more than one would.
            with contextlib.suppress(OSError):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return
            solutions = sorted(_solutions(self._folder))
            excess = sum(size for _, size, _ in solutions) - self._max_bytes
            for _, size, folder in solutions:
                if excess <= 0:
                    break
                if folder.name != kept and _removed(folder):
                    excess -= size
        finally:
            os.close(descriptor)


def _solutions(cache: Path) -> Iterator[tuple[int, int, Path]]:
    """Yields the last use, the size in bytes and the folder of each solution.

    Folders that vanish meanwhile are left out.
    """
    for folder in cache.iterdir():
        with contextlib.suppress(OSError):
            if not folder.is_symlink():
                used = folder.stat().st_mtime_ns
                yield used, sum(path.lstat().st_size for path in folder.iterdir()), folder


def _removed(folder: Path) -> bool:
    """Renames a folder out of the cache and deletes it, so that nobody sees half of it.

    Returns:
        False if the folder has gone.
    """
    with scratch_folder(REMOVED_PREFIX, folder.parent.parent) as place:
        try:
            folder.rename(place / folder.name)
        except OSError:
            return False
    return True


def _has_room(folder: Path, key: str, size: int) -> bool:
    """Tells whether a solution stays within its limits with a library of this size under a key."""
    try:
        others = [(path.stem, path.stat().st_size) for path in folder.glob("*.*") if path.stem != key]
    except FileNotFoundError:  # another process has removed the folder meanwhile
        others = []
    libraries, used = {stem for stem, _ in others}, sum(each for _, each in others)
    return len(libraries) < MAX_LIBRARIES and used + size <= MAX_SOLUTION_BYTES


def _write(source: BinaryIO, size: int, path: Path) -> None:
    """Writes a library under its name at once, so that nobody sees half of it.

    The candidate may let the file grow meanwhile, so that only the bytes that there is room for are read.
    """
    source.seek(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".partial", delete=False) as target:
        while size > 0 and (read := source.read(min(size, _PIECE_BYTES))):
            target.write(read)
            size -= len(read)
    Path(target.name).chmod(0o755)
    Path(target.name).replace(path)


def _open_without_links(built: Path) -> int:
    """Opens a file for reading; refuses links for the file, its folder and the folder above."""
    inner = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    outer = os.open(built.parent.parent, inner | os.O_DIRECTORY)
    try:
        folder = os.open(built.parent.name, inner | os.O_DIRECTORY, dir_fd=outer)
        try:
            return os.open(built.name, inner | os.O_NONBLOCK, dir_fd=folder)
        finally:
            os.close(folder)
    finally:
        os.close(outer)
