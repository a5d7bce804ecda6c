"""Builds a solution by importing it, in the judged worker or ahead of time in a builder.

Building ahead changes no verdict. Libraries go to the cache under the solution's own digest, as
from the judged worker. The judged worker gets the compiler's refusal, and answers as if it
had called the compiler itself. A builder that hangs, crashes or lies has no effect.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from harness.compilation.cache import MAX_LIBRARIES, BuildCache
from harness.judge.policy import Policy
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.judge.process.handle import WorkerHandle
from harness.judge.process.time_limits import Clock
from harness.project.solutions import Solution
from harness.system.text import one_line
from harness.wire.commands import Load
from harness.wire.replies import Failed

#: The stage of a candidate that imports its solution.
IMPORTING = "importing the solution"
#: Message and log of each refusal by a compiler, by build key.
Refused = Mapping[str, tuple[str, str]]
#: An honest worker's refusals fit in this; longer ones are not remembered.
MAX_REFUSED_CHARACTERS = 2 << 20
logger = logging.getLogger(__name__)


def load_command(
    solution: Solution, cache: BuildCache, policy: Policy, refused: Refused = MappingProxyType({})
) -> Load:
    """Makes the command that imports a solution, with the results of its earlier builds.

    Args:
        solution: The solution.
        cache: Libraries of earlier builds.
        policy: How the solution will be judged.
        refused: The compiler's earlier refusals of this solution.
    """
    cached = {key: str(path) for key, path in cache.libraries(solution.digest).items()}
    return Load(str(solution.path), cached, policy.check, dict(refused), policy.compat)


def build_ahead(worker: WorkerHandle, solution: Solution, cache: BuildCache, policy: Policy) -> Refused:
    """Imports a solution so that it builds; the caller closes the worker.

    Args:
        worker: A confined worker, which sees no GPU.
        solution: The solution.
        cache: The cache that keeps libraries.
        policy: How the solution will be judged.

    Returns:
        The compiler's refusals, if any.

    Raises:
        HarnessError: The worker does not start, lacks a required confinement, or its files
            cannot be copied.
    """
    worker.start()
    if policy.require_confinement:
        worker.check_confined()
    reply = None
    with contextlib.suppress(CandidateStopped):  # The judged worker will see the same failure.
        reply = worker.request(load_command(solution, cache, policy), Clock(*policy.granted), IMPORTING)
    keep_builds(worker, solution, cache)
    if not isinstance(reply, Failed) or reply.kind != "build" or not reply.build_key:
        return {}
    refused = {reply.build_key: (reply.message, reply.log)}
    return refused if len(json.dumps(refused)) <= MAX_REFUSED_CHARACTERS else {}


def keep_builds(worker: WorkerHandle, solution: Solution, cache: BuildCache) -> None:
    """Copies the libraries that a worker has built since the last call into the cache."""
    built, worker.built = worker.built, {}
    kept = 0
    for key, file in itertools.islice(built.items(), MAX_LIBRARIES):
        path = worker.build_folder / Path(file).name
        try:
            kept += cache.keep(solution.digest, key, path)
        except OSError as error:
            logger.warning("cannot write the build cache, so the next run builds again: %s", error)
    if kept < len(built):
        logger.warning("did not cache %d of %d builds of %s", len(built) - kept, len(built), one_line(solution.name))
