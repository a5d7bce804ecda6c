"""Describes the integrity rules whose mode is not the default."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records.record import EvaluationRecord
from harness.records.rules import rules_text, weakened
from harness.records.run_config import RunConfig


def rule_lines(records: Sequence[EvaluationRecord]) -> list[str]:
    """Describes the rules that a user changed, and what a pass under weaker rules is worth."""
    lines = dict[str, None]()
    for record in records:
        rules = RunConfig.of(record).rules
        if rules:
            lines[f"rules: {rules_text(rules)}"] = None
        if weak := weakened(rules):
            what = f"{', '.join(weak)} not enforced"
            lines[f"weakened: {what}; such a pass does not count for a run with the default rules"] = None
    return list(lines)
