"""What a candidate can be timed against: the problem's own model, run in one way or another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from harness.errors import UsageError, suggestion

EAGER = "eager"


class BaselineVariant(NamedTuple):
    """A way to run the reference.

    Attributes:
        meaning: What it is, in words.
        compile_mode: The mode of ``torch.compile``; empty where nothing is compiled.
        allows_tf32: Whether products and convolutions may use TF32, which torch's default flags allow of convolutions
            alone. Such a baseline need not reach the precision that a candidate is held to.
        replays: Whether a call is the replay of a CUDA graph.
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
    """The baselines that a user names, each once, in the order of ``BASELINES``; eager is always among them.

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
