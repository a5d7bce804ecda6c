"""Decides what a broken integrity rule means: ``CHEATED``, a finding, or nothing.

The user chooses that for each rule; see docs/read-a-verdict.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from harness.errors import UsageError, suggestion
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.records.record import REPORT, EvaluationRecord, Finding, Status
from harness.records.rules import ENFORCED, MEANINGS, PROTOCOL, REPORTED, Mode
from harness.scanning.rules import RULES


class IntegrityRule(NamedTuple):
    """An integrity rule: its name, what breaks it, and its default mode."""

    name: str
    meaning: str
    default: Mode


def every_rule() -> dict[str, IntegrityRule]:
    """Return all rules by name: those of running candidates, then those of the static scan."""
    running = [IntegrityRule(name, MEANINGS[name], Mode.ENFORCE) for name in ENFORCED]
    running += [IntegrityRule(name, MEANINGS[name], Mode.REPORT) for name in REPORTED]
    scanned = [IntegrityRule(rule.name, f"in the source: {rule.what}", Mode.REPORT) for rule in RULES.values()]
    return {rule.name: rule for rule in (*running, *scanned)}


def parse_rules(texts: Iterable[str], refusals: Iterable[str] = ()) -> dict[str, Mode]:
    """Parse ``--rules`` and ``--refuse``; return the rules whose mode they change.

    The result is in the order of ``every_rule``.

    Args:
        texts: ``NAME=MODE``, several separated by commas.
        refusals: Names of rules to enforce.

    Raises:
        UsageError: There is no such rule or mode, or the user gives a rule two modes, or one that
            it cannot have.
    """
    known, wanted = every_rule(), dict[str, Mode]()
    given = [(f"--refuse {name!r}", name, Mode.ENFORCE.value) for name in refusals]
    for text in texts:
        for one in text.split(","):
            name, separator, mode = (part.strip() for part in one.partition("="))
            if not separator:
                raise UsageError(
                    f"--rules {one!r}: write NAME=off, NAME=report or NAME=enforce; --rules without a value "
                    "lists the names"
                )
            given.append((f"--rules {one!r}", name, mode))
    for where, name, mode in given:
        if name not in known:
            raise UsageError(f"{where}: there is no rule {name!r}.{suggestion(name, known)}")
        if mode not in list(Mode):
            raise UsageError(f"{where}: there is no mode {mode!r}.{suggestion(mode, [one.value for one in Mode])}")
        if wanted.setdefault(name, Mode(mode)) != mode:
            raise UsageError(f"{where}: {name} is already set to {wanted[name]}; give one mode")
        if name == PROTOCOL and mode != Mode.ENFORCE:
            raise UsageError(
                f"{where}: {PROTOCOL} is always enforced, because the judge must be able to trust the "
                "messages of the worker"
            )
    return {name: wanted[name] for name, rule in known.items() if wanted.get(name, rule.default) != rule.default}


@dataclass
class Integrity:
    """The modes of rules in an evaluation, and the broken rules that are only reported.

    Attributes:
        changed: The rules whose mode is not the default.
        found: Findings about broken rules that are enforced by default and only reported here.
    """

    changed: Mapping[str, Mode] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)

    def is_off(self, rule: str) -> bool:
        """Return whether the user has switched a rule off."""
        return self.changed.get(rule) == Mode.OFF

    def broken(self, rule: str, message: str) -> None:
        """Handle a candidate that broke a rule which is enforced by default.

        Raises:
            CandidateStopped: The rule is enforced.
        """
        if not self.tolerates(CandidateStopped(Status.CHEATED, message, rule=rule)):
            raise CandidateStopped(Status.CHEATED, message, rule=rule)

    def tolerates(self, stop: CandidateStopped) -> bool:
        """Return whether an end comes from a rule that is not enforced; add a finding if reported."""
        mode = self.changed.get(stop.rule or "", Mode.ENFORCE)
        if mode == Mode.ENFORCE:
            return False
        finding = Finding(
            stop.rule or "",
            kernel=None,
            line=None,
            accesses=(),
            remedy=f"enforced by default (--rules {stop.rule}={mode})",
            message=stop.message,
            level=REPORT,
        )
        if mode == Mode.REPORT and finding not in self.found:
            self.found.append(finding)
        return True

    def decided(self, record: EvaluationRecord) -> EvaluationRecord:
        """Apply the rules to a finished record.

        The result lacks the findings of rules that are off. A record that passed becomes
        ``CHEATED`` if a finding is of a rule that the user enforces.
        """
        findings = tuple(one for one in record.findings if one.level != REPORT or not self.is_off(one.kind))
        record = replace(record, findings=findings)
        if record.status is Status.PASSED:
            for finding in findings:
                if finding.level == REPORT and self.changed.get(finding.kind) == Mode.ENFORCE:
                    message = f"{finding.message} (enforced by --rules {finding.kind}=enforce)"
                    told = "\n".join(filter(None, (message, record.message)))
                    return replace(record, status=Status.CHEATED, rule=finding.kind, message=told)
        return record
