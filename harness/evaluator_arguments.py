"""Checks the arguments of an ``Evaluator``, so that no slip of a program reaches the judge or the store.

Each function raises a ``UsageError`` that names the wrong argument.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Mapping, Sequence

from harness.errors import UsageError

MOST_LANES = 4096
MOST_TRIALS = 1000


def check_seconds(**limits: object) -> None:
    """Checks that each limit is None or a positive number of seconds.

    Raises:
        UsageError: One is not.
    """
    for name, limit in limits.items():
        if limit is not None and not _is_positive(limit):
            raise UsageError(f"{name} must be a positive number of seconds, not {limit!r}")


def check_flags(**flags: object) -> None:
    """Checks that each flag is True or False; a record could not be read with any other value.

    Raises:
        UsageError: One is not.
    """
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise UsageError(f"{name} must be True or False, not {flag!r}")


def check_emulated(check: bool, exhaustive: bool, device: object) -> None:
    """Checks that the device is a string, that accesses are checked on the emulator only, and orders with them.

    Raises:
        UsageError: It is not, or they are to be checked on another device.
    """
    if not isinstance(device, str):
        raise UsageError(f"device must be a string such as 'cpu' or 'cuda:0', not {device!r}")
    if check and device != "cpu":
        raise UsageError(f"check runs on the CPU emulator: give device='cpu', not {device!r}")
    if exhaustive and not check:
        raise UsageError("exhaustive explores launches whose accesses are checked: give check=True, too")


def check_names(**lists: object) -> None:
    """Checks that each argument is a list of names.

    Raises:
        UsageError: One is not.
    """
    for name, names in lists.items():
        is_text = isinstance(names, str | bytes | Mapping)
        if is_text or not isinstance(names, Collection) or not all(isinstance(one, str) for one in names):
            raise UsageError(f"{name} must be a list of names, not {names!r}")


def check_text(**texts: object) -> None:
    """Checks that each argument is None, or a string or path without NUL.

    Raises:
        UsageError: One is not.
    """
    for name, text in texts.items():
        found = os.fspath(text) if isinstance(text, str | os.PathLike) else text
        if text is not None and (not isinstance(found, str) or "\0" in found):
            raise UsageError(f"{name} must be a string or a path, not {text!r}")


def check_lanes_and_seed(lanes: object, seed: object) -> None:
    """Checks the number of lanes and the seed.

    Raises:
        UsageError: ``lanes`` is neither None nor a whole number from 1 to ``MOST_LANES``, or ``seed`` is
            not a hexadecimal number.
    """
    if lanes is not None and (not isinstance(lanes, int) or isinstance(lanes, bool) or not 1 <= lanes <= MOST_LANES):
        raise UsageError(f"lanes must be a whole number from 1 to {MOST_LANES}, not {lanes!r}")
    if seed is not None and not (isinstance(seed, str) and re.fullmatch("[0-9a-fA-F]+", seed)):
        raise UsageError(f"seed must be the hexadecimal seed of a record, not {seed!r}")


def check_rules(rules: object) -> None:
    """Checks that rules are a mapping of a rule's name to a mode.

    Raises:
        UsageError: They are not.
    """
    words = [*rules.keys(), *rules.values()] if isinstance(rules, Mapping) else [None]
    if rules is not None and not all(isinstance(word, str) and not re.search("[,=]", word) for word in words):
        raise UsageError(f"rules must be a dict such as {{'flags': 'off'}}, not {rules!r}")


def check_choice(name: str, chosen: object, known: Sequence[str]) -> None:
    """Checks an argument that takes None or one of a few words.

    Raises:
        UsageError: It has another value.
    """
    if chosen is not None and chosen not in known:
        raise UsageError(f"{name} must be {' or '.join(map(repr, known))}, not {chosen!r}")


def check_trials(trials: object) -> None:
    """Checks the number of trials.

    Raises:
        UsageError: It is invalid.
    """
    if trials is not None and (
        not isinstance(trials, int) or isinstance(trials, bool) or not 1 <= trials <= MOST_TRIALS
    ):
        raise UsageError(f"trials must be a whole number from 1 to {MOST_TRIALS}, not {trials!r}")


def check_speedups(**given: object) -> None:
    """Checks that each argument is a mapping of names of cases to positive numbers.

    Raises:
        UsageError: One is not.
    """
    for name, speedups in given.items():
        pairs = speedups.items() if isinstance(speedups, Mapping) else [(None, None)]
        if not all(isinstance(case, str) and _is_positive(one) for case, one in pairs):
            raise UsageError(f"{name} must be a dict such as {{'full': 1.5}}, not {speedups!r}")


def _is_positive(number: object) -> bool:
    if not isinstance(number, int | float) or isinstance(number, bool):
        return False
    try:
        return math.isfinite(number) and number > 0
    except OverflowError:  # a whole number too large for a float
        return False
