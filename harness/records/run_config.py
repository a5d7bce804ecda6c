"""The run configuration that the command line, the library, the store and replay share.

A record keeps it as its ``policy``. Only this module knows the keys of that dict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.records.baselines import EAGER
from harness.records.rules import Mode

if TYPE_CHECKING:
    from harness.records.record import EvaluationRecord

#: Default timeouts in seconds for a run on a case and for builds. The user or the problem may set
#: others.
DEFAULT_TIMEOUT_S, DEFAULT_BUILD_TIMEOUT_S = 60.0, 300.0
STRICT, RELAXED = "strict", "relaxed"
#: Whether TF32 is within the class fp32; empty for what torch's flags say.
ALLOW, FORBID = "allow", "forbid"
#: The preset that adds KernelBench's own verdict to the harness's, on outputs alone.
KERNELBENCH = "kernelbench"
#: The keys of a policy that do not affect the verdict on outputs and gradients.
_BESIDE_THE_VERDICT = frozenset({"baselines", "trials", "timing"})


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The user's choices for a run.

    Attributes:
        timeout_s: Timeout in seconds for a candidate's run on a case; None for the problem's
            timeout, else the default.
        build_timeout_s: Timeout in seconds for a candidate's builds; None for the problem's
            timeout, else the default.
        forward_only: Whether to judge outputs only, without gradients.
        timing: Whether to measure speed on a GPU.
        precision: The tolerance for results: ``strict`` or ``relaxed``.
        rules: The modes of the integrity rules that differ from the default, by name.
        check: The architecture whose limits the emulator checks; empty for no checks.
        baselines: The names of the baselines to time against (``harness.records.baselines``).
        require_confinement: Whether to refuse to run a candidate without full confinement.
        seed: The secret that determines all draws, in hex; None for a fresh one.
        trials: The number of trials of each case; None for the usual number.
        replay: Whether the run repeats an earlier evaluation. The candidate then also runs several
            times on the same inputs.
        preset: ``kernelbench`` to add KernelBench's own verdict, which sets ``forward_only``; else empty.
        tf32: ``allow`` or ``forbid`` TF32 in float32 products; empty for what torch's flags say.
        compat: Whether code for an older torch may build.
        exhaustive: Whether ``check`` also runs kernels in all orders of what synchronises their threads.
        nvcc: The release of the nvcc that compiles for ``check``; empty if there is none, None if
            unknown.
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
    preset: str = ""
    tf32: str = ""
    compat: bool = False
    exhaustive: bool = False
    nvcc: str | None = None

    def __post_init__(self) -> None:
        if self.preset == KERNELBENCH:  # its evaluator knows no gradients
            object.__setattr__(self, "forward_only", True)

    @property
    def is_relaxed(self) -> bool:
        """True if the judge accepts errors up to the tolerances of torch's own tests."""
        return self.precision == RELAXED

    def seconds(self, timeout_s: float | None = None, build_timeout_s: float | None = None) -> tuple[float, float]:
        """Returns the timeouts in seconds for running and building a problem's candidates.

        The user's choice comes first, then the problem's, then the default.

        Args:
            timeout_s: The problem's timeout for running; None if it sets none.
            build_timeout_s: The problem's timeout for building; None if it sets none.
        """
        run = (self.timeout_s, timeout_s, DEFAULT_TIMEOUT_S)
        build = (self.build_timeout_s, build_timeout_s, DEFAULT_BUILD_TIMEOUT_S)
        return _first(run), _first(build)

    def to_policy(self, device: str) -> dict[str, Any]:
        """Returns the configuration as a record's ``policy``, mostly without default values.

        Stores identify an evaluation by these keys and values. A change of them invalidates every
        stored verdict.

        Args:
            device: ``cpu`` or ``cuda:N``; a policy for the CPU has no ``timing`` key.
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
            **({"preset": self.preset} if self.preset else {}),
            **({"tf32": self.tf32} if self.tf32 else {}),
            **({"compat": True} if self.compat else {}),
            **({"check": self.check, "nvcc": self.nvcc} if self.check else {}),
            **({"exhaustive": True} if self.exhaustive else {}),
            **({"trials": self.trials} if self.trials is not None else {}),
        }

    @staticmethod
    def from_policy(policy: Mapping[str, Any], seed: str | None = None) -> RunConfig:
        """Reads a record's ``policy``, including those of earlier versions.

        Args:
            policy: The policy; missing keys have their defaults.
            seed: The record's secret.

        Raises:
            ValueError: A rule has a mode that this version does not know.
        """
        baselines, trials = policy.get("baselines"), policy.get("trials")
        refused = dict.fromkeys(policy.get("refused", ()), Mode.ENFORCE)  # older records have no modes
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
            preset=str(policy.get("preset") or ""),
            tf32=str(policy.get("tf32") or ""),
            compat=bool(policy.get("compat")),
            exhaustive=bool(policy.get("exhaustive")),
            nvcc=policy.get("nvcc"),
        )

    @staticmethod
    def of(record: EvaluationRecord) -> RunConfig:
        """Reads a record's configuration.

        Raises:
            ValueError: A rule has a mode that this version does not know.
        """
        return RunConfig.from_policy(record.policy, record.seed)


def of_the_verdict(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a policy without its baselines, trials and timing, which do not affect a verdict."""
    return {name: value for name, value in policy.items() if name not in _BESIDE_THE_VERDICT}


def _first(values: tuple[float | None, float | None, float]) -> float:
    """Returns the first value that is not None."""
    return next(value for value in values if value is not None)


def _number(value: Any) -> float | None:
    """Returns a value as a float; None if it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
