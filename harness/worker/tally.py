"""A tally of what the judged calls of an instance did: which of torch's operators ran, and how much they worked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.aten.operators import HEAVY
from harness.wire.messages import EmulatedWork

FORWARD, BACKWARD = "forward", "backward"


@dataclass
class Tally:
    """What the judged calls of one instance did so far.

    Attributes:
        operators: Torch's heavy operators by direction, and how often each ran in one call at most.
        forwards: How many forwards there were.
        threads: Threads of the candidate's own kernels.
        elements: Elements of the largest tensor that each of torch's operators was given.
    """

    operators: dict[str, dict[str, int]] = field(default_factory=lambda: {FORWARD: {}, BACKWARD: {}})
    forwards: int = 0
    threads: int = 0
    elements: int = 0

    def add(self, direction: str, operators: Mapping[str, tuple[int, int]], threads: int) -> None:
        """Add one call.

        Args:
            direction: ``forward`` or ``backward``.
            operators: By name in torch's schema how often each ran, and the elements that it was given.
            threads: Threads of the candidate's own kernels.
        """
        self.forwards += direction == FORWARD
        self.threads += threads
        most = self.operators[direction]
        for name, (calls, elements) in operators.items():
            self.elements += elements
            short = name.rpartition("::")[2]
            if short in HEAVY:
                most[short] = max(most.get(short, 0), calls)

    @property
    def work(self) -> EmulatedWork:
        """The sums, as the judge is told them."""
        return EmulatedWork(self.forwards, self.threads, self.elements)
