"""Locates the project and the harness's own files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from harness import package
from harness.errors import UsageError

#: Folder of the home with data derived from problems' references: compiled code and their work.
REFERENCES = "references"
#: Options for Python in the harness's processes. Files of the working folder, which may be
#: candidates, are no modules (``-P``). torch warns if NumPy is missing, and the harness does not
#: need NumPy.
PYTHON_OPTIONS = ("-P", "-W", "ignore:Failed to initialize NumPy:UserWarning")


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
        root = expanded(chosen)
        if not (root / "problems").is_dir():
            raise UsageError(
                f"--root {chosen}: there is no folder {root / 'problems'}; "
                "make the first problem with `python -m harness new problem NAME --root FOLDER`"
            )
        return root
    current = Path.cwd()
    return current if (current / "problems").is_dir() else bundled_root()


def expanded(path: str) -> Path:
    """Returns the absolute path of what a user wrote, with ``~`` for a home folder.

    Raises:
        UsageError: There is no user of that name.
    """
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:
        raise UsageError(f"{path}: there is no user {Path(path).parts[0][1:]!r}; write the whole path") from None


def own_root(chosen: str | None = None) -> Path:
    """Returns the folder for new problems and templates: the chosen or else the current one.

    The folder may be empty.
    """
    return expanded(chosen) if chosen is not None else Path.cwd()


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
        return expanded(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kernel-harness"
    cache = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification requires programs to ignore relative paths.
    base = Path(cache) if cache and Path(cache).is_absolute() else Path.home() / ".cache"
    return base / "kernel-harness"


def import_path() -> str:
    """Returns a ``PYTHONPATH`` with this package and the folders of the user's own.

    An empty part of the user's, as ``:/folder`` has, would be the working folder.
    """
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(filter(None, (str(package.FOLDER.parent), *own)))
