"""Where the project and the harness's own files are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from harness import package
from harness.errors import UsageError

#: Folder of the home with what was made of problems' references: compiled code, and their work.
REFERENCES = "references"
#: Options of Python for processes of ours: torch warns where NumPy is not installed, and nothing here needs NumPy.
QUIET = ("-W", "ignore:Failed to initialize NumPy:UserWarning")


def project_root(chosen: str | None = None) -> Path:
    """The folder whose ``problems/``, ``templates/`` and ``solutions/`` are meant.

    Args:
        chosen: What ``--root``, ``$HARNESS_ROOT`` or the configuration names.

    Returns:
        The chosen folder; else the current one where it contains ``problems/``; else what came with the harness.

    Raises:
        UsageError: The chosen folder has no ``problems/``.
    """
    if chosen is not None:
        root = Path(chosen).expanduser().absolute()
        if not (root / "problems").is_dir():
            raise UsageError(
                f"--root {chosen}: there is no folder {root / 'problems'}; "
                "make the first problem with `python -m harness new problem NAME --root FOLDER`"
            )
        return root
    current = Path.cwd()
    return current if (current / "problems").is_dir() else bundled_root()


def own_root(chosen: str | None = None) -> Path:
    """The folder that new problems and templates go to: the chosen one, else the current one; it may be empty."""
    return Path(chosen).expanduser().absolute() if chosen is not None else Path.cwd()


def refuse_installed(root: Path) -> None:
    """Refuse to write where the harness itself is installed: those files belong to the package's installer.

    Raises:
        UsageError: The root lies within the installed package.
    """
    if root.resolve().is_relative_to(package.FOLDER):
        raise UsageError(
            f"{root} came with the harness and lies within its installation, where nothing is written; say where to "
            "with --root FOLDER, work in a folder of your own that has problems/, or render to a file with -o FILE"
        )


def shown(path: Path) -> str:
    """A path as messages show it: relative to the current folder where it lies there."""
    current = Path.cwd()
    return str(path.relative_to(current) if path.is_relative_to(current) else path)


def bundled_root() -> Path:
    """The problems, templates and solutions that came with the harness: in the wheel, or in its checkout."""
    installed = package.FOLDER / "bundled"
    return installed if installed.is_dir() else package.FOLDER.parent


def harness_home(chosen: str | None = None) -> Path:
    """Where the build cache and the store are kept; nothing is created.

    Args:
        chosen: What ``--home`` or the configuration names.

    Returns:
        The chosen folder, else ``$HARNESS_HOME`` where that is set, else ``kernel-harness`` in the platform's cache
        folder (``~/Library/Caches`` on macOS, ``$XDG_CACHE_HOME`` or ``~/.cache`` elsewhere).
    """
    chosen = chosen or os.environ.get("HARNESS_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kernel-harness"
    cache = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification says that relative paths are to be ignored.
    base = Path(cache) if cache and Path(cache).is_absolute() else Path.home() / ".cache"
    return base / "kernel-harness"


def import_path() -> str:
    """A ``PYTHONPATH`` by which processes of ours find this very package, and whatever else the user's finds."""
    return os.pathsep.join(filter(None, (str(package.FOLDER.parent), os.environ.get("PYTHONPATH"))))
