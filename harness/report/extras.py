"""Imports packages that only some formats need."""

from __future__ import annotations

import importlib
from typing import Any

from harness.errors import UsageError


def imported(module: str, option: str) -> Any:
    """Imports a module of an optional package.

    Args:
        module: Name of the module.
        option: The option that needs it, for the message.

    Raises:
        UsageError: It cannot be imported; the message has the command that installs it.
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        is_missing = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == package
        why = "is not installed" if is_missing else f"cannot be imported ({error})"
        raise UsageError(f"{option}: {package} {why}: pip install {package}") from None
