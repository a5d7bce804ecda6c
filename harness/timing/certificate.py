"""What a call takes at least, by a clock that the candidate cannot reach.

The judge times windows: ``n`` calls, or twice as many, each on inputs of its own and into a place of its own, from the
command to the end of the judge's copies. The slope ``(W(2n) - W(n)) / n`` is what one more call takes; what a window
takes besides, the command and the copies, is in both. Two other series of such windows come from a process that is
trusted: eager PyTorch's, and one in which results are stored and nothing is called. The latter tells what storing
takes, which is no part of a call, and what a window takes besides its calls: dawdling in short ones gains nothing.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

#: A call by itself may honestly be faster by this share than one of many in a row: clocks fall under load.
TOLERANCE = 0.05
#: Eager's own claims may be too small by this factor, and any claim by that one.
MOST_DRIFT, MOST_TIMES = 1.5, 3.0
#: Below this nothing is certified: what Python takes to launch a call varies by so much (see docs/measuring.md).
LEAST_RESOLUTION_MS = 0.05


@dataclass(frozen=True)
class Windows:
    """One side's windows, in milliseconds of the judge's clock.

    Attributes:
        calls: Calls in a short window; a long one has twice as many.
        short_ms: The short windows.
        long_ms: The long ones.
    """

    calls: int
    short_ms: tuple[float, ...]
    long_ms: tuple[float, ...]

    @property
    def slope_ms(self) -> float:
        """What one more call takes."""
        return (statistics.median(self.long_ms) - statistics.median(self.short_ms)) / self.calls

    @property
    def constant_ms(self) -> float:
        """What a window takes besides its calls."""
        return statistics.median(self.short_ms) - self.calls * self.slope_ms

    @property
    def resolution_ms(self) -> float:
        """By how much the slope may be off: noise only ever adds, so what medians have above minima, a call."""
        return sum(statistics.median(part) - min(part) for part in (self.short_ms, self.long_ms)) / self.calls

    def at_least_ms(self, storing: Windows) -> float:
        """What a call took in the fastest long window, by what the trusted side's windows take besides their calls."""
        return (min(self.long_ms) - storing.constant_ms) / (2 * self.calls) - max(0.0, storing.slope_ms)


@dataclass(frozen=True)
class Certificate:
    """What the windows prove of one direction. Milliseconds a call; storing of results is taken off.

    Attributes:
        calls: Calls in a short window.
        candidate_ms: The candidate's slope: what a call takes.
        at_least_ms: What it takes at least: the candidate's fastest long window, less a trusted window's constant.
        eager_ms: Eager PyTorch's slope, to be compared with its own events: how far to trust all this.
        eager_at_least_ms: What a call of eager's takes at least.
        overhead_ms: What storing a call's results takes, and the loop around it.
        resolution_ms: What cannot be told from nothing: the spread of the trusted sides, or ``LEAST_RESOLUTION_MS``.
        windows: The raw windows of the ``candidate``, of ``eager``, and of ``storing`` alone.
    """

    calls: int
    candidate_ms: float
    at_least_ms: float
    eager_ms: float
    eager_at_least_ms: float
    overhead_ms: float
    resolution_ms: float
    windows: dict[str, Windows]

    def accepts(self, claim_ms: float, eager_claim_ms: float) -> bool:
        """Whether a claim is no less than what a call takes at least.

        Allowed for are the resolution, ``TOLERANCE``, and by how much eager, which does not lie, claims too little;
        none of them without bound, since a candidate may make noise.

        Args:
            claim_ms: What events said of one call of the candidate by itself.
            eager_claim_ms: The same of eager.
        """
        drift = min(MOST_DRIFT, max(1.0, self.eager_at_least_ms / eager_claim_ms))
        resolution = min(self.resolution_ms, LEAST_RESOLUTION_MS + eager_claim_ms / 10)
        allowed = claim_ms * drift * (1 + TOLERANCE) + resolution
        return allowed >= self.at_least_ms and claim_ms >= self.at_least_ms / MOST_TIMES


def certificate(candidate: Windows, eager: Windows, storing: Windows) -> Certificate:
    """Certify from the windows of the three sides, which have the same number of calls."""
    overhead = max(0.0, storing.slope_ms)
    return Certificate(
        candidate.calls,
        candidate.slope_ms - overhead,
        candidate.at_least_ms(storing),
        eager.slope_ms - overhead,
        eager.at_least_ms(storing),
        overhead,
        max(LEAST_RESOLUTION_MS, eager.resolution_ms, storing.resolution_ms),
        {"candidate": candidate, "eager": eager, "storing": storing},
    )
