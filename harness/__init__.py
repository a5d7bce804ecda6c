"""Judges generated GPU kernels: which are correct, in outputs and gradients, and which are faster."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from harness.package import VERSION

if TYPE_CHECKING:
    from harness.async_evaluator import AsyncEvaluator
    from harness.entries import Answer, Entry
    from harness.errors import (
        AnswerError,
        DeadlineExceeded,
        DeviceError,
        HarnessError,
        ProblemError,
        SolutionError,
        StoreError,
        UsageError,
    )
    from harness.evaluator import Evaluator
    from harness.records.record import EvaluationRecord, Status

_MODULES = {
    "Answer": "harness.entries",
    "AnswerError": "harness.errors",
    "AsyncEvaluator": "harness.async_evaluator",
    "DeadlineExceeded": "harness.errors",
    "DeviceError": "harness.errors",
    "Entry": "harness.entries",
    "EvaluationRecord": "harness.records.record",
    "Evaluator": "harness.evaluator",
    "HarnessError": "harness.errors",
    "ProblemError": "harness.errors",
    "SolutionError": "harness.errors",
    "Status": "harness.records.record",
    "StoreError": "harness.errors",
    "UsageError": "harness.errors",
}
__all__ = [
    "Answer",
    "AnswerError",
    "AsyncEvaluator",
    "DeadlineExceeded",
    "DeviceError",
    "Entry",
    "EvaluationRecord",
    "Evaluator",
    "HarnessError",
    "ProblemError",
    "SolutionError",
    "Status",
    "StoreError",
    "UsageError",
]
__version__ = VERSION


def __getattr__(name: str) -> Any:
    """Imports the library's names when they are first asked for: the command line does without."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
