"""Defines the baselines for timing: the problem's own model, run in several ways."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from harness.errors import UsageError, suggestion

EAGER = "eager"


class BaselineVariant(NamedTuple):
    """A way to run the reference.

    Attributes:
        meaning: Description in words.
        compile_mode: Mode of ``torch.compile``; empty without compilation.
        allows_tf32: Whether matrix products and convolutions may use TF32; torch's default flags
            allow it for convolutions only. Such a baseline need not reach the precision that a
            candidate must reach.
        replays: Whether a call replays a CUDA graph.
    """

    meaning: str
    compile_mode: str = ""
    allows_tf32: bool = False
    replays: bool = False


BASELINES = {
    EAGER: BaselineVariant("eager PyTorch"),
    "compile": BaselineVariant("torch.compile", "default"),
    "compile-max-autotune": BaselineVariant(
        "torch.compile(mode='max-autotune-no-cudagraphs')", "max-autotune-no-cudagraphs"
    ),
    "eager-graph": BaselineVariant("eager PyTorch, replayed from a CUDA graph", replays=True),
    "eager-tf32": BaselineVariant("eager PyTorch with TF32 allowed", allows_tf32=True),
    "compile-tf32": BaselineVariant("torch.compile with TF32 allowed", "default", allows_tf32=True),
    "compile-max-autotune-tf32": BaselineVariant(
        "torch.compile(mode='max-autotune-no-cudagraphs') with TF32 allowed",
        "max-autotune-no-cudagraphs",
        allows_tf32=True,
    ),
}


def chosen(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the chosen baselines, each once, in the order of ``BASELINES``.

    Eager is always one of them.

    Raises:
        UsageError: There is no such baseline.
    """
    wanted = {EAGER, *names}
    for name in wanted:
        if name not in BASELINES:
            raise UsageError(
                f"--baseline {name!r}: it must be one of {', '.join(BASELINES)}.{suggestion(name, BASELINES)}"
            )
    return tuple(name for name in BASELINES if name in wanted)
