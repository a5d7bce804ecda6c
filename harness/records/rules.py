"""Names the integrity rules, both enforced and reported ones (docs/read-a-verdict.md)."""

from __future__ import annotations

import enum
from collections.abc import Mapping

PROTOCOL, INPUT_MUTATION, LATE_WRITE, CLOCK = "protocol", "input_mutation", "late_write", "clock"
REPLACED_FUNCTIONS = "replaced-functions"
NO_OWN_KERNEL, LIBRARY_OPERATORS, OTHER_STREAMS = "no-own-kernel", "library-operators", "other-streams"
THREADS, FLAGS = "live-threads", "flags"

#: Rules that make a candidate ``CHEATED`` if it breaks one, unless the user relaxes them.
ENFORCED = (PROTOCOL, INPUT_MUTATION, LATE_WRITE, CLOCK, REPLACED_FUNCTIONS)
#: Rules that honest solutions may break, too, for reasons of their own.
REPORTED = (NO_OWN_KERNEL, LIBRARY_OPERATORS, OTHER_STREAMS, THREADS, FLAGS)
#: What breaks each rule.
MEANINGS = {
    PROTOCOL: "an invalid or unexpected message",
    INPUT_MUTATION: "an input that forward or backward changed",
    LATE_WRITE: "a result written after the worker reported that its call was done",
    CLOCK: "a claimed time that the judge's own clock refutes",
    REPLACED_FUNCTIONS: "a replaced function that measures time, waits, compares or passes results on",
    NO_OWN_KERNEL: "no own kernel ran in one direction, or own kernels do under 5 % of the work",
    LIBRARY_OPERATORS: "torch's heavy operators ran, or the solution's C++ names them or functions that hide them",
    OTHER_STREAMS: "kernels or copies ran on streams other than the call's",
    THREADS: "Python threads stay alive between calls",
    FLAGS: "settings of torch were changed and not restored",
}


class Mode(enum.StrEnum):
    """The effect of a broken rule: nothing, a finding of level ``report``, or ``CHEATED``."""

    OFF = "off"
    REPORT = "report"
    ENFORCE = "enforce"


def weakened(rules: Mapping[str, Mode]) -> dict[str, Mode]:
    """Returns the rules that are enforced by default and have another mode in a configuration."""
    return {name: mode for name, mode in rules.items() if name in ENFORCED and mode != Mode.ENFORCE}


def rules_text(rules: Mapping[str, Mode]) -> str:
    """Formats modes in the syntax of ``--rules``."""
    return ",".join(f"{name}={mode}" for name, mode in rules.items())
