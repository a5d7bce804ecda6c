"""``evaluate --rules``: lists the integrity rules and what happens if a candidate breaks one."""

from __future__ import annotations

import json
from collections.abc import Mapping

from harness.judge.integrity import every_rule
from harness.project.settings import SETTINGS
from harness.records.rules import Mode

#: The value that ``--rules`` has if the user gives none.
LISTED = SETTINGS["rules"].flag


def print_rules(changed: Mapping[str, Mode], as_json: bool) -> None:
    """Prints every rule on stdout: its current mode, its default mode, and what breaks it.

    Args:
        changed: The rules whose mode is not the default.
        as_json: Whether to print one JSON object a line.
    """
    rules = every_rule().values()
    width = max(len(rule.name) for rule in rules)
    for rule in rules:
        mode = changed.get(rule.name, rule.default)
        if as_json:
            told = {"rule": rule.name, "mode": str(mode), "default": str(rule.default), "meaning": rule.meaning}
            print(json.dumps(told))
        else:
            by_default = "" if mode == rule.default else f" (by default {rule.default})"
            print(f"{rule.name:{width}}  {mode:7}  {rule.meaning}{by_default}")
