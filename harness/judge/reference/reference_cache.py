"""Caches what the candidates of a batch share on a case: facts about its reference.

These facts follow from the problem, the case and the batch's secret, and never from a candidate:
the forms of outputs, which samples lie near a kink, and the sums that budgets depend on. The cache
keeps no tensor of a draw and no expected value. It lives in the judge's process, which no worker
can reach.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.judge.exchange.exchange import TensorForm
from harness.judge.inputs.draws import Draw
from harness.judge.reference.kinks import SettlingSteps
from harness.judge.reference.reference import Reference
from harness.judge.reference.reference_errors import Gauges
from harness.wire.replies import OutputPart

#: Limits of the whole cache: cases, and bytes.
MOST_CASES, MOST_BYTES = 64, 256 << 20
#: The most draws kept of one case. That covers all trials, and the audited calls of some candidates,
#: whose seeds depend on how many calls a window has.
MOST_DRAWS = 48


@dataclass(frozen=True)
class Shape:
    """The visible form of a case's reference.

    Attributes:
        outputs: Forms of the outputs.
        leaves: The leaves that the reference differentiates.
        differentiable: Paths of the outputs that it differentiates.
        structure: The containers around the outputs.
        has_kinks: Whether the forward has an operator with a kink.
        unsupported: Situations that the model does not support (see ``reference.unsupported``).
        products: The kinds of products of float32 operands (see ``tf32.Products``).
    """

    outputs: list[TensorForm]
    leaves: tuple[str, ...]
    differentiable: tuple[str, ...]
    structure: tuple[OutputPart, ...]
    has_kinks: bool
    unsupported: frozenset[str]
    products: frozenset[str] = frozenset()


class _Measured(NamedTuple):
    """A draw's gauges, with its ``Draw.mark``."""

    mark: bytes
    gauges: Gauges


class _Reason(NamedTuple):
    """Why nothing can be judged under a draw (None if it can), with the draw's mark."""

    mark: bytes
    why: str | None


@dataclass
class CaseCache:
    """Everything the cache knows of one case.

    Attributes:
        reference: Evaluates the reference; None before it has run.
        shape: The visible form of the reference; None before it has run.
        steps: How draws were moved away from kinks, by the seed of their forward.
        shared: Number of draws whose gauges were found here since this was last set to 0.
    """

    reference: Reference | None = None
    shape: Shape | None = None
    steps: dict[int, SettlingSteps] = field(default_factory=dict)
    shared: int = 0
    _gauges: dict[Hashable, _Measured] = field(default_factory=dict)
    _reasons: dict[Hashable, _Reason] = field(default_factory=dict)

    def gauges(self, name: Hashable, draw: Draw) -> Gauges:
        """Return the known gauges of a draw; the caller adds what it measures.

        Args:
            name: What the draw is for; its seed follows from that.
            draw: The draw. If the same seed gave another draw before, its gauges do not count.
        """
        if self.bytes > MOST_BYTES:
            for measured in self._gauges.values():
                for gauge in measured.gauges.values():
                    gauge.influence.forget()
        mark = draw.mark()
        kept = self._gauges.pop(name, None)
        if kept is None or kept.mark != mark:
            kept = _Measured(mark, {})
        self._gauges[name] = kept  # Reinsert as the most recent.
        self.shared += bool(kept.gauges)
        return kept.gauges

    def reason(self, name: Hashable, draw: Draw, look: Callable[[], str | None]) -> str | None:
        """Return why nothing can be judged under a draw; None where it can.

        Args:
            name: What the draw is for, and what is tested.
            draw: The draw.
            look: Finds the reason.
        """
        mark = draw.mark()
        kept = self._reasons.get(name)
        if kept is None or kept.mark != mark:
            kept = self._reasons[name] = _Reason(mark, look())
        return kept.why

    def trim(self) -> None:
        """Forget the least recently used draws above the limit."""
        for kept in (self._gauges, self.steps):
            for oldest in list(kept)[: max(0, len(kept) - MOST_DRAWS)]:
                del kept[oldest]  # type: ignore[arg-type]

    @property
    def bytes(self) -> int:
        """Memory that the sums take, in bytes."""
        return sum(gauge.bytes for kept in self._gauges.values() for gauge in kept.gauges.values())


class ReferenceCache:
    """Keeps what is known of the most recently judged cases, for one batch or judging process.

    Args:
        most_cases: The most cases to keep.
        most_bytes: The most memory that their sums may take.

    Attributes:
        unfit: Results of the problems' fitness checks, by ``records.identity.fitness_key``. None where the
            checks could not finish.
    """

    def __init__(self, most_cases: int = MOST_CASES, most_bytes: int = MOST_BYTES):
        self._most_cases = most_cases
        self._most_bytes = most_bytes
        self._known: OrderedDict[Hashable, CaseCache] = OrderedDict()
        self.unfit: dict[str, tuple[str, ...] | None] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, key: Hashable) -> CaseCache:
        """Return what is known of a case.

        Args:
            key: Identifies everything on which draws and evaluations of its reference depend.
        """
        known = self._known.setdefault(key, CaseCache())
        self._known.move_to_end(key)
        return known

    def trim(self) -> None:
        """Forget the least recently used cases above the limits."""
        for known in self._known.values():
            known.trim()
        while len(self._known) > self._most_cases or sum(one.bytes for one in self._known.values()) > self._most_bytes:
            self._known.popitem(last=False)
