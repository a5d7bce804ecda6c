"""The ways in which a baseline runs the reference: eager, compiled, with TF32, or not at all."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from harness.wire.messages import Varied, Vary

#: Functions are compiled once for each way and grad mode; torch's own limit is meant for one way.
RECOMPILE_LIMIT = 64
MAX_REASONS, MAX_REASON_CHARACTERS = 5, 300


class EmptyLaunch(torch.nn.Module):
    """A call that launches one kernel which does nothing: what is left is what timing itself takes."""

    def forward(self, *_: Any) -> torch.Tensor:
        """Launch it, where there is a GPU."""
        if torch.cuda.is_available():
            torch.cuda._sleep(0)  # type: ignore[no-untyped-call]
        return torch.empty(0)


class Variants:
    """The reference's models by the way that they are run, for one problem and case.

    Compiled ones stay from one candidate to the next; others are made anew, with whatever state they have.
    """

    def __init__(self) -> None:
        self._models: dict[str, torch.nn.Module] = {}
        self._compiled: dict[str, torch.nn.Module] = {}
        self._breaks: dict[str, Counter[str]] = {}
        self._frames: Counter[str] = Counter()
        self._seen = _counted()
        self._used = ""
        self._allows_tf32 = False

    def take(self, command: Vary, make: Callable[[], torch.nn.Module]) -> tuple[torch.nn.Module, bool]:
        """The model of a way, and whether it was there before.

        Args:
            command: The way.
            make: Makes the reference's model, on the device.
        """
        self._book()
        self._used, self._allows_tf32 = command.name, command.allows_tf32
        there = self._compiled if command.compile_mode else self._models
        is_known = command.name in there
        if not is_known:
            model = EmptyLaunch() if command.is_empty else make()
            if command.compile_mode:
                _compile(model, command.compile_mode)
            there[command.name] = model
        return there[command.name], is_known

    def leave(self) -> None:
        """No way is in use any more."""
        self._book()
        self._models.clear()
        self._used, self._allows_tf32 = "", False

    def told(self, is_known: bool) -> Varied:
        """What torch.compile made of the way that is in use."""
        breaks = self._breaks.get(self._used, Counter()).most_common(MAX_REASONS)
        reasons = tuple(reason.partition("\n")[0][:MAX_REASON_CHARACTERS] for reason, _ in breaks)
        return Varied(is_known, self._frames[self._used], reasons)

    @contextlib.contextmanager
    def flags(self) -> Iterator[None]:
        """The flags of the way that is in use; torch's own stand again afterwards."""
        if not self._allows_tf32:
            yield
            return
        before = torch.get_float32_matmul_precision()  # convolutions may use TF32 by default
        torch.set_float32_matmul_precision("high")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def _book(self) -> None:
        """Book what dynamo has counted since the last time on the way that was in use."""
        breaks, frames = _counted()
        self._breaks.setdefault(self._used, Counter()).update(breaks - self._seen[0])
        self._frames[self._used] += frames - self._seen[1]
        self._seen = breaks, frames


def forget() -> None:
    """Drop everything that torch.compile keeps in this process."""
    if "torch._dynamo.utils" in sys.modules:
        torch.compiler.reset()


def _compile(model: torch.nn.Module, mode: str) -> None:
    from torch._dynamo import config

    config.recompile_limit = RECOMPILE_LIMIT
    # Not the module as a whole: the names of its parameters stay.
    model.forward = torch.compile(model.forward, mode=mode, dynamic=False)


def _counted() -> tuple[Counter[str], int]:
    """Why dynamo has left compiled code, and how many functions it has compiled, in this process so far."""
    if "torch._dynamo.utils" not in sys.modules:  # importing it takes seconds, which eager alone need not spend
        return Counter(), 0
    from torch._dynamo.utils import counters

    return Counter(counters["graph_break"]), int(counters["frames"]["ok"])
