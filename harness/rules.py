"""The integrity rules by name: what is enforced, and what is reported and may be refused (docs/integrity.md)."""

from __future__ import annotations

from collections.abc import Iterable

from harness.errors import UsageError, suggestion

#: Enforced: who breaks one is ``CHEATED``.
PROTOCOL, INPUT_MUTATION, LATE_WRITE, CLOCK = "protocol", "input_mutation", "late_write", "clock"
REPLACED_FUNCTIONS = "replaced-functions"
#: Reported: honest solutions do this too, for reasons of their own.
NO_OWN_KERNEL, LIBRARY_OPERATORS, OTHER_STREAMS = "no-own-kernel", "library-operators", "other-streams"
THREADS, FLAGS = "live-threads", "flags"

ENFORCED = {
    PROTOCOL: "a worker's message that is none of the closed schema, or comes out of turn",
    INPUT_MUTATION: "an input changed by forward or backward",
    LATE_WRITE: "a result written after the answer that its call was done",
    CLOCK: "a time that the judge's own clock refutes",
    REPLACED_FUNCTIONS: "a function replaced that tells time, waits for the device, compares, or passes results on",
}
REPORTED = {
    NO_OWN_KERNEL: "no kernel that the solution built ran in one of the directions, or in both",
    LIBRARY_OPERATORS: "heavy operators of torch (products, convolutions, norms, softmax, sorting) ran",
    OTHER_STREAMS: "kernels or copies ran on other streams than the one that the call was made on",
    THREADS: "Python threads live on between calls",
    FLAGS: "settings of torch (TF32, default dtype, deterministic algorithms, autocast, threads) are left changed",
}


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
