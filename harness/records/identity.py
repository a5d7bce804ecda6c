"""Names records and runs, and computes the keys by which evaluations are found again."""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any

from harness.records.json_values import plain
from harness.records.record import EvaluationRecord

#: Keys of a record's environment that identify its software and machine.
IDENTIFYING = ("harness", "harness_code", "python", "torch", "compiler", "processor", "gpu", "capability", "cuda")
#: A key that only records of solutions have that may use such packages.
KERNEL_PACKAGES = "kernel_packages"


def identity(record: EvaluationRecord) -> str:
    """Returns the key of an evaluation.

    The key covers solution, problem, case, kind of device, policy, software and machine.

    Two records with the same identity answer the same question; their secrets (``seed``) may
    differ.
    """
    known = {
        "solution": record.digest,
        "problem": record.problem_digest,
        "case": record.case,
        **constants_key(record),
        "device": record.device.partition(":")[0],
        "policy": record.policy,
        "environment": _environment(record),
    }
    return hashlib.sha256(json.dumps(plain(known), sort_keys=True).encode()).hexdigest()


def _environment(record: EvaluationRecord) -> dict[str, str | None]:
    """Returns the part of a record's environment that verdicts depend on."""
    packages = {name: value for name, value in record.environment.items() if name == KERNEL_PACKAGES}
    return {**{name: record.environment.get(name) for name in IDENTIFYING}, **packages}


def fitness_key(record: EvaluationRecord) -> str:
    """Returns the key of a case's fitness checks.

    The key covers problem, constants, kind of device, software and machine.
    """
    known = {
        "problem": record.problem_digest,
        **constants_key(record),
        "device": record.device.partition(":")[0],
        "environment": {name: record.environment.get(name) for name in IDENTIFYING},
    }
    return hashlib.sha256(json.dumps(plain(known), sort_keys=True).encode()).hexdigest()


def constants_key(record: EvaluationRecord) -> dict[str, Any]:
    """Returns a record's constants as a part of a key.

    JSON has one form for ``(1, 2)`` and ``[1, 2]``. The key therefore also holds the texts of those
    settings whose values JSON changes, such as tuples. Numbers, strings and lists need none.
    """
    constants = plain(record.constants)
    kept = {f"{name}={value!r}" for name, value in constants.items()}
    changed = sorted(text for text in record.settings if text not in kept)
    return {"constants": constants, **({"settings": changed} if changed else {})}


def new_record_name() -> str:
    """Returns a new name for a record: 12 hex digits."""
    return secrets.token_hex(6)


def new_run_name() -> str:
    """Returns a new name for a command: ``run-`` and 8 hex digits."""
    return f"run-{secrets.token_hex(4)}"
