"""Where the project and the harness's own files are."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def project_root() -> Path:
    """The folder with ``problems/``, ``templates/`` and ``solutions/``.

    Returns:
        The current folder where it contains ``problems/``, else the folder above the ``harness`` package.
    """
    current = Path.cwd()
    if (current / "problems").is_dir():
        return current
    return Path(__file__).resolve().parent.parent


def harness_home() -> Path:
    """Where the build cache and the store are kept; nothing is created.

    Returns:
        ``$HARNESS_HOME`` where that is set, else ``kernel-harness`` in the platform's cache folder
        (``~/Library/Caches`` on macOS, ``$XDG_CACHE_HOME`` or ``~/.cache`` elsewhere).
    """
    chosen = os.environ.get("HARNESS_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kernel-harness"
    cache = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification says that relative paths are to be ignored.
    base = Path(cache) if cache and Path(cache).is_absolute() else Path.home() / ".cache"
    return base / "kernel-harness"
