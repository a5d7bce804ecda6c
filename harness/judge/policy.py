"""The settings that all evaluations of a batch share."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from harness.compilation.cache import BuildCache
from harness.device import environment
from harness.judge.process.time_limits import Limits
from harness.project.paths import REFERENCES
from harness.records.run_config import RunConfig
from harness.timing import ceilings
from harness.timing.ceilings import Ceilings

#: A run whose accesses are checked takes up to ten times as long (docs/emulator.md has figures).
CHECKED_TIME = 10


def new_secret() -> str:
    """Draws a fresh secret: 128 bits in hex."""
    return secrets.token_hex(16)


@dataclass(frozen=True)
class Policy(RunConfig):
    """A complete run configuration: for one device, with a secret and time limits.

    Attributes:
        device: ``cpu`` or ``cuda:N``.
        secret: Source of the seeds that all candidates of a batch share, in hex.
        limits: Seconds that a candidate may run and build.
        own_seed: Source of the seeds that one candidate has to itself, in hex. Empty for a fresh secret for each
            candidate.
        to_beat: Speedups over eager by case, such as those of the fastest setting of a search so far. The
            judge takes fewer timings of a candidate that is certainly far slower. Records do not hold
            them: their messages say which timings ended early.
    """

    device: str
    secret: str
    limits: Limits
    own_seed: str = field(default="", kw_only=True)
    to_beat: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    @classmethod
    def settled(cls, config: RunConfig, device: str) -> Policy:
        """Completes a configuration for a device: draws a secret and sets limits where it has none."""
        chosen = {one.name: getattr(config, one.name) for one in fields(RunConfig)}
        return cls(device, config.seed or new_secret(), Limits(*config.seconds()), **chosen)

    @property
    def granted(self) -> Limits:
        """The seconds that a candidate gets: its limits, with more to run if accesses are checked."""
        return self.limits._replace(run_s=self.limits.run_s * (CHECKED_TIME if self.check else 1))


@dataclass(frozen=True)
class Surroundings:
    """The folders and machine facts that evaluations share.

    Attributes:
        cache: Built libraries.
        log_folder: Where the full output of failed builds goes.
        environment: Versions and processor, for records.
        work_folder: Folder that caches the minimal work of problems (see ``timing.minimal_work``).
        ceilings: The device's ceilings; None where they have not been measured.
        home: ``HARNESS_HOME``, whose store keeps the results of fitness checks; None to keep them nowhere.
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
        return cls(
            cache=BuildCache(home / "builds"),
            log_folder=home / "logs",
            work_folder=home / REFERENCES / "counts",
            environment=versions,
            ceilings=known,
            home=home,
        )
