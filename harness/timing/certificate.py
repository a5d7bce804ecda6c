"""Certifies a lower bound on the time of a call, by a clock that the candidate cannot reach.

The judge times windows of ``n`` or ``2n`` calls. Each call has its own inputs and its own place for
results. A window lasts from the command to the end of the judge's copies.

The slope ``(W(2n) - W(n)) / n`` is the time of one more call. The command and the copies are in
both windows, so they cancel.

A trusted process runs two more series of windows: one of eager PyTorch, and one that only stores
results and calls nothing. The second series gives the time of storing, which is no part of a call.
It also gives a window's constant part, so a candidate gains nothing by being slow in short windows.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

#: Share by which a single call may honestly be faster than one of many in a row. Clocks fall under
#: load.
TOLERANCE = 0.05
#: Maximum factor by which eager's own claims may be too small, and the same for any claim.
MOST_DRIFT, MOST_TIMES = 1.5, 3.0
#: Smallest time that can be certified. The time that Python takes to launch a call varies by this
#: much (see docs/measuring.md).
LEAST_RESOLUTION_MS = 0.05


@dataclass(frozen=True)
class Windows:
    """The windows of one side, in milliseconds of the judge's clock.

    Attributes:
        calls: Number of calls in a short window; a long one has twice as many.
        short_ms: Times of the short windows.
        long_ms: Times of the long windows.
    """

    calls: int
    short_ms: tuple[float, ...]
    long_ms: tuple[float, ...]

    @property
    def slope_ms(self) -> float:
        """The time of one more call."""
        return (statistics.median(self.long_ms) - statistics.median(self.short_ms)) / self.calls

    @property
    def constant_ms(self) -> float:
        """The part of a window's time that does not depend on the number of calls."""
        return statistics.median(self.short_ms) - self.calls * self.slope_ms

    @property
    def resolution_ms(self) -> float:
        """The possible error of the slope for each call, as the distance of medians from minima.

        Noise can only add time.
        """
        return sum(statistics.median(part) - min(part) for part in (self.short_ms, self.long_ms)) / self.calls

    def at_least_ms(self, storing: Windows) -> float:
        """Returns the time of a call in the fastest long window.

        Args:
            storing: Windows of the trusted side that only stores results. They give the part of a
                window's time that is not calls.
        """
        return (min(self.long_ms) - storing.constant_ms) / (2 * self.calls) - max(0.0, storing.slope_ms)


@dataclass(frozen=True)
class Certificate:
    """The result that the windows prove about one direction.

    Times are milliseconds for each call, without the storing of results.

    Attributes:
        calls: Number of calls in a short window.
        candidate_ms: Slope of the candidate, which is the time of a call.
        at_least_ms: Lower bound on that time: the candidate's fastest long window, less a trusted
            window's constant.
        eager_ms: Slope of eager PyTorch. Comparing it with eager's own events shows how far the
            certificate can be trusted.
        eager_at_least_ms: Lower bound on the time of a call of eager.
        overhead_ms: Time of storing the results of a call, with the loop around it.
        resolution_ms: Smallest distinguishable time: the spread of the trusted sides, or
            ``LEAST_RESOLUTION_MS``.
        windows: Raw windows of the ``candidate``, of ``eager``, and of ``storing`` alone.
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
        """Returns whether a claimed time is at least the proven lower bound.

        It tolerates the resolution, ``TOLERANCE``, and the factor by which honest eager claims too
        little. Each of these has a limit, because a candidate may cause noise.

        Args:
            claim_ms: Time of a single call of the candidate by events.
            eager_claim_ms: The same for eager.
        """
        drift = min(MOST_DRIFT, max(1.0, self.eager_at_least_ms / eager_claim_ms))
        resolution = min(self.resolution_ms, LEAST_RESOLUTION_MS + eager_claim_ms / 10)
        allowed = claim_ms * drift * (1 + TOLERANCE) + resolution
        return allowed >= self.at_least_ms and claim_ms >= self.at_least_ms / MOST_TIMES


def certificate(candidate: Windows, eager: Windows, storing: Windows) -> Certificate:
    """Computes the certificate from the windows of the three sides, with equal numbers of calls."""
    overhead = max(0.0, storing.slope_ms)
    return Certificate(
        candidate.calls,
        candidate_ms=candidate.slope_ms - overhead,
        at_least_ms=candidate.at_least_ms(storing),
        eager_ms=eager.slope_ms - overhead,
        eager_at_least_ms=eager.at_least_ms(storing),
        overhead_ms=overhead,
        resolution_ms=max(LEAST_RESOLUTION_MS, eager.resolution_ms, storing.resolution_ms),
        windows={"candidate": candidate, "eager": eager, "storing": storing},
    )
