"""The integrity rules by name: what is enforced, and what is reported and may be enforced (docs/integrity.md)."""

from __future__ import annotations

import enum
from collections.abc import Mapping

PROTOCOL, INPUT_MUTATION, LATE_WRITE, CLOCK = "protocol", "input_mutation", "late_write", "clock"
REPLACED_FUNCTIONS = "replaced-functions"
NO_OWN_KERNEL, LIBRARY_OPERATORS, OTHER_STREAMS = "no-own-kernel", "library-operators", "other-streams"
THREADS, FLAGS = "live-threads", "flags"

#: Who breaks one is ``CHEATED``, unless the user wants less.
ENFORCED = (PROTOCOL, INPUT_MUTATION, LATE_WRITE, CLOCK, REPLACED_FUNCTIONS)
#: Honest solutions do this too, for reasons of their own.
REPORTED = (NO_OWN_KERNEL, LIBRARY_OPERATORS, OTHER_STREAMS, THREADS, FLAGS)
#: What each one is broken by.
MEANINGS = {
    PROTOCOL: "a message that is none of the closed schema, or comes out of turn",
    INPUT_MUTATION: "an input that forward or backward changed",
    LATE_WRITE: "a result written after the answer that its call was done",
    CLOCK: "a time that the judge's own clock refutes",
    REPLACED_FUNCTIONS: "a replaced function that tells time, waits, compares or passes results on",
    NO_OWN_KERNEL: "no own kernel ran in one of the directions, or own kernels do under 5 % of the work",
    LIBRARY_OPERATORS: "heavy operators of torch ran, or the solution's C++ names them or functions that hide them",
    OTHER_STREAMS: "kernels or copies ran on other streams than the call's",
    THREADS: "Python threads live on between calls",
    FLAGS: "settings of torch are left changed",
}


class Mode(enum.StrEnum):
    """What comes of a broken rule: nothing, a finding of level ``report``, or ``CHEATED``."""

    OFF = "off"
    REPORT = "report"
    ENFORCE = "enforce"


def weakened(rules: Mapping[str, Mode]) -> dict[str, Mode]:
    """Picks the rules that are enforced by default and have another mode in a configuration."""
    return {name: mode for name, mode in rules.items() if name in ENFORCED and mode != Mode.ENFORCE}


def rules_text(rules: Mapping[str, Mode]) -> str:
    """Modes as ``--rules`` takes them."""
    return ",".join(f"{name}={mode}" for name, mode in rules.items())
