"""What a batch of evaluations has in common: how it is judged, and where."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.compilation.cache import BuildCache
from harness.device import environment
from harness.judge.process.clocks import Limits
from harness.project.baselines import EAGER
from harness.project.paths import REFERENCES
from harness.records.rules import Mode
from harness.timing import ceilings
from harness.timing.ceilings import Ceilings

#: A run whose accesses are checked takes up to ten times as long (docs/emulator.md has figures).
CHECKED_TIME = 10


def new_secret() -> str:
    """Draws a fresh secret: 128 bits in hex."""
    return secrets.token_hex(16)


@dataclass(frozen=True)
class Policy:
    """How a batch is judged.

    Attributes:
        device: ``cpu`` or ``cuda:N``.
        secret: What the seeds derive from that all candidates of a batch share, in hex.
        limits: Seconds that a candidate may run and build.
        forward_only: Judge outputs alone.
        require_confinement: Judge nothing where a layer of the worker's confinement is missing.
        baselines: What to time against, by the names of ``harness.project.baselines``.
        is_relaxed: Whether errors up to the tolerances of torch's own tests are accepted.
        rules: The integrity rules that have another mode than by default (see ``judge.integrity``).
        check: The architecture under whose limits the emulator checks every access of the kernels; empty for no checks.
        is_timed: Whether speed is measured on a GPU.
        is_replay: Whether an earlier evaluation is repeated: the candidate then also runs several times on the same
            inputs.
        own_seed: What the seeds of the draws derive from that a candidate has to itself; a fresh secret for each
            candidate where it is empty.
    """

    device: str
    secret: str
    limits: Limits
    forward_only: bool = False
    require_confinement: bool = False
    baselines: tuple[str, ...] = (EAGER,)
    is_relaxed: bool = False
    rules: Mapping[str, Mode] = field(default_factory=dict)
    check: str = ""
    is_timed: bool = True
    is_replay: bool = False
    own_seed: str = ""

    @property
    def granted(self) -> Limits:
        """The seconds that a candidate gets: the limits, and more to run where its accesses are checked."""
        return self.limits._replace(run_s=self.limits.run_s * (CHECKED_TIME if self.check else 1))


@dataclass(frozen=True)
class Surroundings:
    """Where builds are kept, and what records say of the machine.

    Attributes:
        cache: Built libraries.
        log_folder: Where the full output of failed builds goes.
        environment: Versions and processor, for records.
        work_folder: Where it is kept what problems cannot do without.
        ceilings: The device's, where they have been measured.
        home: ``HARNESS_HOME``, whose store keeps what the fitness checks of problems found; None for nowhere.
    """

    cache: BuildCache
    log_folder: Path
    work_folder: Path
    environment: dict[str, str]
    ceilings: Ceilings | None = None
    home: Path | None = None

    @classmethod
    def of_this_machine(cls, home: Path, compiler: str, device: str) -> Surroundings:
        """The surroundings under a ``HARNESS_HOME``; ``compiler`` is the version of what builds for the device."""
        versions = environment.describe(compiler)
        known = None
        if device != "cpu":
            versions |= environment.describe_gpu()
            known = ceilings.load(home, versions)
        return cls(BuildCache(home / "builds"), home / "logs", home / REFERENCES / "counts", versions, known, home)
