"""Locates the project and the harness's own files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from harness import package
from harness.errors import UsageError

#: Folder of the home with data derived from problems' references: compiled code and their work.
REFERENCES = "references"
#: Options for Python in the harness's processes. torch warns if NumPy is missing, and the harness
#: does not need NumPy.
QUIET = ("-W", "ignore:Failed to initialize NumPy:UserWarning")


def project_root(chosen: str | None = None) -> Path:
    """Returns the folder whose ``problems/``, ``templates/`` and ``solutions/`` to use.

    Args:
        chosen: Folder from ``--root``, ``$HARNESS_ROOT`` or the configuration.

    Returns:
        The chosen folder, else the current one if it contains ``problems/``, else the folder that
        came with the harness.

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
    """Returns the folder for new problems and templates: the chosen or else the current one.

    The folder may be empty.
    """
    return Path(chosen).expanduser().absolute() if chosen is not None else Path.cwd()


def refuse_installed(root: Path) -> None:
    """Refuses to write into the installed package, whose files belong to its installer.

    Raises:
        UsageError: The root lies within the installed package.
    """
    if root.resolve().is_relative_to(package.FOLDER):
        raise UsageError(
            f"{root} is part of the harness's installation, where nothing is written; name another folder "
            "with --root, run in a folder of your own that has problems/, or render to a file with -o FILE"
        )


def shown(path: Path) -> str:
    """Formats a path for messages: relative to the current folder if it lies there."""
    current = Path.cwd()
    return str(path.relative_to(current) if path.is_relative_to(current) else path)


def bundled_root() -> Path:
    """Returns the folder of the problems, templates and solutions that came with the harness.

    It lies in the wheel or in the checkout.
    """
    installed = package.FOLDER / "bundled"
    return installed if installed.is_dir() else package.FOLDER.parent


def harness_home(chosen: str | None = None) -> Path:
    """Returns the folder of the build cache and the store, without creating it.

    Args:
        chosen: Folder from ``--home`` or the configuration.

    Returns:
        The chosen folder, else ``$HARNESS_HOME``, else ``kernel-harness`` in the platform's cache
        folder (``~/Library/Caches`` on macOS, ``$XDG_CACHE_HOME`` or ``~/.cache`` elsewhere).
    """
    chosen = chosen or os.environ.get("HARNESS_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kernel-harness"
    cache = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification requires programs to ignore relative paths.
    base = Path(cache) if cache and Path(cache).is_absolute() else Path.home() / ".cache"
    return base / "kernel-harness"


def import_path() -> str:
    """Returns a ``PYTHONPATH`` with this package and the folders of the user's own."""
    return os.pathsep.join(filter(None, (str(package.FOLDER.parent), os.environ.get("PYTHONPATH"))))
