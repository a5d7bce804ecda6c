"""What the candidates of a batch have in common on a case: what its reference came to under the batch's secret.

All of it follows from the problem, the case and the secret, and none of it from a candidate: the forms of the outputs,
which draws lie near a kink, and the sums that budgets are measured by. Kept are sums and forms, no tensor of a draw and
no expected value. It lives in the judge's process, which no worker can reach.
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

#: What is kept of all cases together, at most.
MOST_CASES, MOST_BYTES = 64, 256 << 20
#: Of one case what is known of so many draws: those of all trials, and of the audited calls of some candidates, whose
#: seeds follow from how many calls a window has.
MOST_DRAWS = 48


@dataclass(frozen=True)
class Shape:
    """What a case's reference looks like from outside.

    Attributes:
        outputs: The outputs' forms.
        leaves: The leaves that it differentiates.
        structure: What the outputs come in.
        has_kinks: Whether its forward has an operator with a kink.
    """

    outputs: list[TensorForm]
    leaves: tuple[str, ...]
    structure: tuple[OutputPart, ...]
    has_kinks: bool


class _Measured(NamedTuple):
    """What was measured of a draw, and the draw's ``Draw.mark``."""

    mark: bytes
    gauges: Gauges


class _Reason(NamedTuple):
    """Why nothing can be judged under a draw, or None, and the draw's mark."""

    mark: bytes
    why: str | None


@dataclass
class CaseCache:
    """What is known of one case.

    Attributes:
        reference: Evaluates the reference; None before it has run.
        shape: What that showed; None before.
        steps: How draws were kept from kinks, by the seed of their forward.
        shared: Of how many draws gauges were there already, since this was last set to 0.
    """

    reference: Reference | None = None
    shape: Shape | None = None
    steps: dict[int, SettlingSteps] = field(default_factory=dict)
    shared: int = 0
    _gauges: dict[Hashable, _Measured] = field(default_factory=dict)
    _reasons: dict[Hashable, _Reason] = field(default_factory=dict)

    def gauges(self, name: Hashable, draw: Draw) -> Gauges:
        """What is known of the reference's evaluations of a draw; what is measured is to be added to it.

        Args:
            name: What the draw is for; its seed follows from that.
            draw: The draw. Where the same seed gave another one before, nothing of that is known of this one.
        """
        mark = draw.mark()
        kept = self._gauges.pop(name, None)
        if kept is None or kept.mark != mark:
            kept = _Measured(mark, {})
        self._gauges[name] = kept  # the last one now
        self.shared += bool(kept.gauges)
        return kept.gauges

    def sizes(self, name: Hashable, cotangent: str) -> list[float]:
        """RMS of each of the reference's gradients under a cotangent; empty where they were not measured.

        Args:
            name: What the draw is for.
            cotangent: The cotangent's name.
        """
        kept = self._gauges.get(name)
        gauge = None if kept is None else kept.gauges.get(cotangent)
        return [] if gauge is None else [scale.rms for scale in gauge.scale.values()]

    def reason(self, name: Hashable, draw: Draw, look: Callable[[], str | None]) -> str | None:
        """Why nothing can be judged under a draw; None where it can.

        Args:
            name: What the draw is for, and what is looked at.
            draw: The draw.
            look: Finds out.
        """
        mark = draw.mark()
        kept = self._reasons.get(name)
        if kept is None or kept.mark != mark:
            kept = self._reasons[name] = _Reason(mark, look())
        return kept.why

    def trim(self) -> None:
        """Forget the draws that were asked for longest ago, where there are too many."""
        for kept in (self._gauges, self.steps):
            for oldest in list(kept)[: max(0, len(kept) - MOST_DRAWS)]:
                del kept[oldest]  # type: ignore[arg-type]

    @property
    def bytes(self) -> int:
        """What the sums take in memory."""
        return sum(gauge.bytes for kept in self._gauges.values() for gauge in kept.gauges.values())


class ReferenceCache:
    """Of the cases that were judged last, what is known of each; for one batch, or one process that judges.

    Args:
        most_cases: So many are kept at most.
        most_bytes: Their sums take no more.

    Attributes:
        unfit: What the fitness checks of problems found, by ``store.fitness_key``; None where they could not finish.
    """

    def __init__(self, most_cases: int = MOST_CASES, most_bytes: int = MOST_BYTES):
        self._most_cases = most_cases
        self._most_bytes = most_bytes
        self._known: OrderedDict[Hashable, CaseCache] = OrderedDict()
        self.unfit: dict[str, tuple[str, ...] | None] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, key: Hashable) -> CaseCache:
        """What is known of a case.

        Args:
            key: All that draws and evaluations of its reference follow from.
        """
        known = self._known.setdefault(key, CaseCache())
        self._known.move_to_end(key)
        return known

    def trim(self) -> None:
        """Forget those that were asked for longest ago, where they are too many or take too much."""
        for known in self._known.values():
            known.trim()
        while len(self._known) > self._most_cases or sum(one.bytes for one in self._known.values()) > self._most_bytes:
            self._known.popitem(last=False)
