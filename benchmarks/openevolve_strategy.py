"""OpenEvolve's program database as a strategy beside those of ``generate``, for ``benchmarks.strategies --openevolve``.

Its controller chooses a parent from one island after another and asks for a change of it. It begins with a program of
the user's; here that is the first answer. A parent that failed is repaired, as its prompt shows the error. Needs
``pip install openevolve``; its own search runs, with its default settings.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from openevolve.config import DatabaseConfig
from openevolve.database import Program, ProgramDatabase

from harness.generation.attempts import Attempt, Kind
from harness.generation.strategies import Move

#: An answer's score in the database, a right one's beside its speedup: what failed is worth less than any that passed.
FAILED, PASSED = 0.0, 1.0


class OpenEvolve:
    """Chooses the next turn as OpenEvolve's controller does; one object for one run.

    Args:
        seed: Seed of the database.
    """

    name = "openevolve"

    def __init__(self, seed: int):
        logging.getLogger("openevolve").setLevel(logging.ERROR)
        self._database = ProgramDatabase(DatabaseConfig(random_seed=seed, log_prompts=False))
        self._islands = len(self._database.islands)
        self._asked: dict[int, int] = {}

    def next(self, history: Sequence[Attempt]) -> Move | None:
        """Returns a change of a parent from the next island; first of all a first answer."""
        if not history:
            return Move(Kind.WRITE)
        last = history[-1]
        self._database.add(self._program(last), iteration=last.number, target_island=self._asked.get(last.number, 0))
        island = last.number % self._islands
        self._database.set_current_island(island)
        parent, _ = self._database.sample_from_island(island)
        self._asked[last.number + 1] = island
        number = int(parent.code.rpartition("# ")[2])  # an island that was empty has a copy, with the code alone
        return Move(Kind.EDIT if history[number - 1].has_passed else Kind.REPAIR, number)

    def _program(self, attempt: Attempt) -> Program:
        score = PASSED + attempt.value if attempt.has_passed else FAILED
        return Program(
            id=str(attempt.number),
            code=f"{attempt.source}\n# {attempt.number}",
            parent_id=None if attempt.parent is None else str(attempt.parent),
            metrics={"combined_score": score},
        )
