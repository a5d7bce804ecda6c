"""The variants in which a baseline runs the reference: eager, compiled, with TF32, or empty."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from harness.wire.commands import Vary
from harness.wire.replies import Varied

#: torch compiles a function once for each variant and grad mode. Its own limit is meant for one
#: variant.
RECOMPILE_LIMIT = 64
MAX_REASONS, MAX_REASON_CHARACTERS = 5, 300


class EmptyLaunch(torch.nn.Module):
    """A model that launches one empty kernel, to measure the cost of timing itself."""

    def forward(self, *_: Any) -> torch.Tensor:
        """Launches the kernel, if there is a GPU."""
        if torch.cuda.is_available():
            torch.cuda._sleep(0)  # type: ignore[no-untyped-call]
        return torch.empty(0)


class Variants:
    """The reference's models by variant, for one problem and case.

    Compiled models serve several candidates. For the others each candidate gets a new model.
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
        """Returns the model of a variant, and whether it existed before.

        Args:
            command: The variant.
            make: A function that creates the reference's model on the device.
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
        """Ends the use of the current variant and drops the models that are not compiled."""
        self._book()
        self._models.clear()
        self._used, self._allows_tf32 = "", False

    def told(self, is_known: bool) -> Varied:
        """Reports what ``torch.compile`` made of the current variant."""
        breaks = self._breaks.get(self._used, Counter()).most_common(MAX_REASONS)
        reasons = tuple(reason.partition("\n")[0][:MAX_REASON_CHARACTERS] for reason, _ in breaks)
        return Varied(is_known, self._frames[self._used], reasons)

    @contextlib.contextmanager
    def flags(self) -> Iterator[None]:
        """Sets the flags of the current variant, and restores torch's own afterwards."""
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
        """Attributes dynamo's counts since the last call to the variant that was in use."""
        breaks, frames = _counted()
        self._breaks.setdefault(self._used, Counter()).update(breaks - self._seen[0])
        self._frames[self._used] += frames - self._seen[1]
        self._seen = breaks, frames


def forget() -> None:
    """Drops everything that ``torch.compile`` keeps in this process."""
    if "torch._dynamo.utils" in sys.modules:
        torch.compiler.reset()


def _compile(model: torch.nn.Module, mode: str) -> None:
    from torch._dynamo import config

    config.recompile_limit = RECOMPILE_LIMIT
    # Compiling the module as a whole would change its parameters' names.
    model.forward = torch.compile(model.forward, mode=mode, dynamic=False)


def _counted() -> tuple[Counter[str], int]:
    """Returns dynamo's reasons for graph breaks and its number of compiled functions so far."""
    if "torch._dynamo.utils" not in sys.modules:  # the import takes seconds, which eager alone need not spend
        return Counter(), 0
    from torch._dynamo.utils import counters

    return Counter(counters["graph_break"]), int(counters["frames"]["ok"])
