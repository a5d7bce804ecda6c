"""Makes files readable for confined workers: lists the folders they may read, and copies files."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from harness import package
from harness.compilation.nvcc import cuda_home


def readable_places(headers: str | None = None) -> list[str]:
    """List the readable folders beyond system folders: Python, packages, this package, compilers.

    Args:
        headers: The folder of the emulator's precompiled headers, if there is one.
    """
    cuda = cuda_home()
    places = [
        *(sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix),
        *(path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")),
        str(package.FOLDER),
        *(path for path in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path),
        *([str(cuda)] if cuda else []),
        *([headers] if headers else []),
    ]
    resolved = [Path(place).resolve() for place in places]
    for program in filter(None, map(shutil.which, (_compiler(), "ninja"))):
        found = Path(program).resolve()
        resolved += [found, found.parent.parent] if found.parent.parent.name != ".local" else [found]
    home = Path.home()
    # Never allow the user's home or its parents. At worst a compiler there does not find its files.
    kept = dict.fromkeys(place for place in resolved if place.exists() and place not in (home, *home.parents))
    return [str(place) for place in kept if place != Path(place.anchor)]


def _compiler() -> str:
    """Return the C++ compiler's name from ``CXX``."""
    try:
        words = shlex.split(os.environ.get("CXX", ""))
    except ValueError:  # A build with this compiler will report what is wrong.
        words = []
    return words[0] if words else "g++"


def copy_readable(source: Path, target: Path) -> None:
    """Copy a file into a worker's folder, readable for any user whatever the umask.

    Raises:
        OSError: The file cannot be read or written.
    """
    if not target.parent.is_dir():
        target.parent.mkdir()
        target.parent.chmod(0o755)
    shutil.copyfile(source, target)
    target.chmod(0o755)


def speakable(path: str, folder: Path) -> str:
    """Return a path that a message can hold: a link in the folder if the name is not UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        link = folder / "named.py"
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        return str(link)
    return path
