"""The judge's side of confinement: what a worker must be able to read."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from harness import package
from harness.compilation.nvcc import cuda_home


def readable_places() -> list[str]:
    """What a worker reads besides the system's folders and its own: Python, its packages, this package, compilers."""
    cuda = cuda_home()
    places = [
        *(sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix),
        *(path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")),
        str(package.FOLDER),
        *(path for path in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path),
        *([str(cuda)] if cuda else []),
    ]
    resolved = [Path(place).resolve() for place in places]
    for program in filter(None, map(shutil.which, (_compiler(), "ninja"))):
        found = Path(program).resolve()
        resolved += [found, found.parent.parent] if found.parent.parent.name != ".local" else [found]
    home = Path.home()
    # Never the user's home, nor what holds it: at worst a compiler there does not find its own files.
    kept = dict.fromkeys(place for place in resolved if place.exists() and place not in (home, *home.parents))
    return [str(place) for place in kept if place != Path(place.anchor)]


def _compiler() -> str:
    """The C++ compiler's name, as ``CXX`` has it."""
    try:
        words = shlex.split(os.environ.get("CXX", ""))
    except ValueError:  # who builds with it will say what is wrong
        words = []
    return words[0] if words else "g++"


def copy_readable(source: Path, target: Path) -> None:
    """Copy a file into a folder of the worker's, to be read by whoever the worker is, whatever the umask.

    Raises:
        OSError: It cannot be read or written.
    """
    if not target.parent.is_dir():
        target.parent.mkdir()
        target.parent.chmod(0o755)
    shutil.copyfile(source, target)
    target.chmod(0o755)
