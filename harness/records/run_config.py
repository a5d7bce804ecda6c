"""How candidates are judged, where users can choose: one configuration for command line, library, store and replay.

A record keeps it as its ``policy``; only this module knows the keys of that dict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.records.baselines import EAGER
from harness.records.rules import Mode

if TYPE_CHECKING:
    from harness.records.record import EvaluationRecord

#: The seconds that a candidate may run on a case and build, where neither the user nor its problem says.
DEFAULT_TIMEOUT_S, DEFAULT_BUILD_TIMEOUT_S = 60.0, 300.0
STRICT, RELAXED = "strict", "relaxed"
#: The keys of a policy on which no verdict on outputs and gradients depends.
_BESIDE_THE_VERDICT = frozenset({"baselines", "trials", "timing"})


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A run's configuration: how its candidates are judged.

    Attributes:
        timeout_s: Seconds that a candidate may run on a case; None for what its problem says, else the default.
        build_timeout_s: Seconds that its builds may take; None for what its problem says, else the default.
        forward_only: Judge outputs alone, no gradients.
        timing: Whether speed is measured on a GPU.
        precision: How exact results must be: ``strict`` or ``relaxed``.
        rules: The integrity rules that have another mode than by default, by name.
        check: The architecture under whose limits the emulator checks every access; empty for no checks.
        baselines: What a candidate is timed against, by the names of ``harness.records.baselines``.
        require_confinement: Run nothing that is not confined in full.
        seed: The secret that all draws follow from, in hex; None for a fresh one.
        trials: How many trials a case has, where it has fewer than usual; None for all of them.
        replay: Whether an earlier evaluation is repeated. The candidate then also runs several times on the same
            inputs.
        nvcc: The release of the nvcc that compiles for ``check``, empty where there is none; None where that is not
            known.
    """

    timeout_s: float | None = None
    build_timeout_s: float | None = None
    forward_only: bool = False
    timing: bool = True
    precision: str = STRICT
    rules: Mapping[str, Mode] = field(default_factory=dict)
    check: str = ""
    baselines: tuple[str, ...] = (EAGER,)
    require_confinement: bool = False
    seed: str | None = None
    trials: int | None = None
    replay: bool = False
    nvcc: str | None = None

    @property
    def is_relaxed(self) -> bool:
        """Whether errors up to the tolerances of torch's own tests are accepted."""
        return self.precision == RELAXED

    def seconds(self, timeout_s: float | None = None, build_timeout_s: float | None = None) -> tuple[float, float]:
        """Returns the seconds that a problem's candidates may run and build.

        The user's choice counts first, then the problem's, then the default.

        Args:
            timeout_s: What the problem says of running; None where it says nothing.
            build_timeout_s: What it says of building.
        """
        run = (self.timeout_s, timeout_s, DEFAULT_TIMEOUT_S)
        build = (self.build_timeout_s, build_timeout_s, DEFAULT_BUILD_TIMEOUT_S)
        return _first(run), _first(build)

    def to_policy(self, device: str) -> dict[str, Any]:
        """Writes the configuration as a record's ``policy``; most keys are there only away from the default.

        Stores know an evaluation by these keys and values: a change makes every kept verdict useless.

        Args:
            device: ``cpu`` or ``cuda:N``; on the CPU no policy speaks of timing.
        """
        timeout_s, build_timeout_s = self.seconds()
        return {
            "forward_only": self.forward_only,
            "timeout_s": timeout_s,
            "build_timeout_s": build_timeout_s,
            **({"timing": False} if device != "cpu" and not self.timing else {}),
            **({"require_confinement": True} if self.require_confinement else {}),
            **({"baselines": list(self.baselines)} if self.baselines != (EAGER,) else {}),
            **({"precision": self.precision} if self.precision != STRICT else {}),
            **({"rules": {name: str(mode) for name, mode in self.rules.items()}} if self.rules else {}),
            **({"replay": True} if self.replay else {}),
            **({"check": self.check, "nvcc": self.nvcc} if self.check else {}),
            **({"trials": self.trials} if self.trials is not None else {}),
        }

    @staticmethod
    def from_policy(policy: Mapping[str, Any], seed: str | None = None) -> RunConfig:
        """Reads a record's ``policy``, also one that an earlier version wrote.

        Args:
            policy: The policy; a key that it lacks has its default.
            seed: The record's secret.

        Raises:
            ValueError: A rule has a mode that this version does not know.
        """
        baselines, trials = policy.get("baselines"), policy.get("trials")
        refused = dict.fromkeys(policy.get("refused", ()), Mode.ENFORCE)  # as records had it before there were modes
        return RunConfig(
            timeout_s=_number(policy.get("timeout_s")),
            build_timeout_s=_number(policy.get("build_timeout_s")),
            forward_only=bool(policy.get("forward_only")),
            timing=bool(policy.get("timing", True)),
            precision=str(policy.get("precision") or STRICT),
            rules=refused | {name: Mode(mode) for name, mode in policy.get("rules", {}).items()},
            check=str(policy.get("check") or ""),
            baselines=tuple(map(str, baselines)) if isinstance(baselines, list | tuple) else (EAGER,),
            require_confinement=bool(policy.get("require_confinement")),
            seed=seed,
            trials=trials if isinstance(trials, int) else None,
            replay=bool(policy.get("replay")),
            nvcc=policy.get("nvcc"),
        )

    @staticmethod
    def of(record: EvaluationRecord) -> RunConfig:
        """Reads the configuration under which a record was made.

        Raises:
            ValueError: A rule has a mode that this version does not know.
        """
        return RunConfig.from_policy(record.policy, record.seed)


def of_the_verdict(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of a policy that a verdict depends on, whatever its trials and its rivals."""
    return {name: value for name, value in policy.items() if name not in _BESIDE_THE_VERDICT}


def _first(values: tuple[float | None, float | None, float]) -> float:
    """Returns the first number of several."""
    return next(value for value in values if value is not None)


def _number(value: Any) -> float | None:
    """Reads a number; None where there is none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
