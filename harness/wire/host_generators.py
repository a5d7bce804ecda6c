"""Seeds the random generators of Python and, if it is there, NumPy, which torch's seeds do not reach."""

from __future__ import annotations

import random
import sys
from typing import Any, NamedTuple

#: NumPy's seeds have as many bits.
SEED_BITS = 32


class HostStates(NamedTuple):
    """The states of both generators, which compare as values; NumPy's is None without NumPy."""

    python: object
    numpy: tuple[Any, ...] | None


def host_states() -> HostStates:
    """Returns the current states."""
    numpy = _numpy()
    if numpy is None:
        return HostStates(random.getstate(), None)
    name, keys, *rest = numpy.get_state()
    return HostStates(random.getstate(), (name, keys.tobytes(), *rest))


def set_host_states(states: HostStates) -> None:
    """Restores states."""
    random.setstate(states.python)  # type: ignore[arg-type]
    numpy = _numpy()
    if numpy is not None and states.numpy is not None:
        name, keys, *rest = states.numpy
        numpy.set_state((name, memoryview(keys).cast("I").tolist(), *rest))


def seed_host(seed: int) -> None:
    """Seeds both generators."""
    random.seed(seed)
    numpy = _numpy()
    if numpy is not None:
        numpy.seed(seed % (1 << SEED_BITS))


def _numpy() -> Any:
    """Returns ``numpy.random`` if torch, or anything else, has imported NumPy; else None."""
    return getattr(sys.modules.get("numpy"), "random", None)
