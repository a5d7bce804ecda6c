"""A tally of an instance's judged calls: which torch operators ran, and how much work they did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.aten.operators import heavy_operator
from harness.wire.replies import EmulatedWork

FORWARD, BACKWARD = "forward", "backward"


@dataclass
class Tally:
    """The work of one instance's judged calls so far.

    Attributes:
        operators: The heavy torch operators by direction, with the largest number of runs in one
            call.
        forwards: The number of forwards.
        threads: The number of threads of the candidate's own kernels.
        elements: The number of elements of the largest tensor passed to each torch operator,
            summed.
    """

    operators: dict[str, dict[str, int]] = field(default_factory=lambda: {FORWARD: {}, BACKWARD: {}})
    forwards: int = 0
    threads: int = 0
    elements: int = 0

    def add(self, direction: str, operators: Mapping[str, tuple[int, int]], threads: int) -> None:
        """Adds one call.

        Args:
            direction: ``forward`` or ``backward``.
            operators: For each operator, by its name in torch's schema, the number of runs and of
                elements.
            threads: The number of threads of the candidate's own kernels.
        """
        self.forwards += direction == FORWARD
        self.threads += threads
        most = self.operators[direction]
        for name, (calls, elements) in operators.items():
            self.elements += elements
            short = name.rpartition("::")[2]
            if heavy_operator(short):
                most[short] = max(most.get(short, 0), calls)

    @property
    def work(self) -> EmulatedWork:
        """The sums in the form that the judge receives."""
        return EmulatedWork(self.forwards, self.threads, self.elements)
