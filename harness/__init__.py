"""Judges generated GPU kernels: which are correct, in outputs and gradients, and which are faster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.package import VERSION

if TYPE_CHECKING:
    from harness.evaluator import Answer, Entry, Evaluator

__all__ = ["Answer", "Entry", "Evaluator"]
__version__ = VERSION


def __getattr__(name: str) -> Any:
    """Import the library's names when they are first asked for: the command line does without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from harness import evaluator

    return getattr(evaluator, name)
