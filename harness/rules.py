"""The integrity rules by name: what is enforced, and what is reported and may be refused (docs/integrity.md)."""

from __future__ import annotations

from collections.abc import Iterable

from harness.errors import UsageError, suggestion

PROTOCOL, INPUT_MUTATION, LATE_WRITE, CLOCK = "protocol", "input_mutation", "late_write", "clock"
REPLACED_FUNCTIONS = "replaced-functions"
NO_OWN_KERNEL, LIBRARY_OPERATORS, OTHER_STREAMS = "no-own-kernel", "library-operators", "other-streams"
THREADS, FLAGS = "live-threads", "flags"

#: Who breaks one is ``CHEATED``.
ENFORCED = (PROTOCOL, INPUT_MUTATION, LATE_WRITE, CLOCK, REPLACED_FUNCTIONS)
#: Honest solutions do this too, for reasons of their own.
REPORTED = (NO_OWN_KERNEL, LIBRARY_OPERATORS, OTHER_STREAMS, THREADS, FLAGS)


def refused(names: Iterable[str]) -> tuple[str, ...]:
    """The reported rules that a user wants enforced, each once, in the order of ``REPORTED``.

    Raises:
        UsageError: There is no such rule.
    """
    wanted = list(names)
    for name in wanted:
        if name not in REPORTED:
            raise UsageError(f"--refuse {name!r}: no rule of that name is reported.{suggestion(name, REPORTED)}")
    return tuple(name for name in REPORTED if name in wanted)
