"""Has a solution build its extensions, in the judged worker or ahead of time in a builder.

Building ahead changes no verdict. Libraries go to the cache under the solution's own digest, as
from the judged worker. The judged worker gets the compiler's refusal, and answers as if it
had called the compiler itself. A builder that hangs, crashes or lies has no effect.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.compilation.cache import FIGURES, MAX_LIBRARIES, BuildCache
from harness.compilation.errors import is_lasting
from harness.errors import ProblemError
from harness.judge.policy import Policy
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.judge.process.time_limits import Clock
from harness.judge.process.worker_handle import WorkerHandle
from harness.project import problems
from harness.project.solutions import Candidate, Solution
from harness.system.text import one_line
from harness.wire.commands import Describe, Load, Rehearse
from harness.wire.replies import Described, Loaded
from harness.wire.values import UnsupportedValue, encode_plain

#: The stage of a candidate that imports its solution.
IMPORTING = "importing the solution"
#: Message and log of each refusal by a compiler, by build key.
Refused = Mapping[str, tuple[str, str]]
#: Seconds that a problem or a candidate may run on tensors without values. A candidate that hangs
#: then hangs in the judged worker, too.
AHEAD_LIMIT_S = 20.0
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
    known = {**cache.refusals(solution.digest), **refused}
    return Load(str(solution.path), cached, policy.check, known, policy.compat, policy.exhaustive)


def build_ahead(
    opened: Callable[[], AbstractContextManager[WorkerHandle]],
    candidate: Candidate,
    constants: dict[str, Any],
    cache: BuildCache,
    policy: Policy,
) -> Refused:
    """Imports a solution so that it builds, then makes an instance, and calls it if it built nothing so far.

    The instance and its arguments are tensors without values, on a device that says that it is a GPU.

    Args:
        opened: Starts a confined worker, which sees no GPU, for a block.
        candidate: The solution and its problem.
        constants: The problem's constants that the case replaces.
        cache: The cache that keeps libraries.
        policy: How the solution will be judged.

    Returns:
        The compiler's refusals, if any.

    Raises:
        HarnessError: A worker does not start, lacks a required confinement, or its files cannot be
            copied.
    """
    with opened() as worker:
        worker.start()
        if policy.require_confinement:
            worker.check_confined()
        with contextlib.suppress(CandidateStopped):  # The judged worker will see the same failure.
            load = load_command(candidate.solution, cache, policy)
            loaded = worker.request(load, Clock(*policy.granted), IMPORTING)
            if isinstance(loaded, Loaded) and (told := _described(opened, candidate, constants, policy)) is not None:
                own = has_own_arguments(candidate, loaded)
                command = Rehearse(own, told.init_args, encoded(candidate, constants), told.inputs)
                worker.request(command, _short_clock(policy), "building ahead")
        keep_builds(worker, candidate.solution, cache)
        return worker.refused


def _described(
    opened: Callable[[], AbstractContextManager[WorkerHandle]],
    candidate: Candidate,
    constants: dict[str, Any],
    policy: Policy,
) -> Described | None:
    """Returns the arguments that a problem gives to its model, from a worker that runs the problem's code alone.

    None if the problem's functions need tensors with values.
    """
    with opened() as worker, contextlib.suppress(CandidateStopped):
        worker.start()
        command = Describe(str(candidate.problem.path), encoded(candidate, constants))
        reply = worker.request(command, _short_clock(policy), "describing the problem")
        return reply if isinstance(reply, Described) else None
    return None


def _short_clock(policy: Policy) -> Clock:
    run_s, build_s = policy.granted
    return Clock(min(run_s, AHEAD_LIMIT_S), build_s)


def has_own_arguments(candidate: Candidate, loaded: Loaded) -> bool:
    """Returns whether the constructor's arguments come from the solution's own ``get_init_inputs``."""
    return loaded.has_init_inputs and differs(candidate, "get_init_inputs")


def differs(candidate: Candidate, function: str) -> bool:
    """Returns whether a solution redefines a function of its problem differently."""
    own = problems.function_source(candidate.solution.source, function)
    return own is not None and own != problems.function_source(candidate.problem.source, function)


def encoded(candidate: Candidate, constants: dict[str, Any]) -> str:
    """Encodes a case's constants for a worker.

    Raises:
        ProblemError: One of them cannot be sent to a worker.
    """
    try:
        return encode_plain(constants)
    except UnsupportedValue as error:
        raise ProblemError(f"{candidate.problem.path}: the case's constants: {error}") from None


def keep_builds(worker: WorkerHandle, solution: Solution, cache: BuildCache) -> None:
    """Copies the libraries that a worker has built since the last call into the cache, and lasting refusals."""
    built, worker.built = worker.built, {}
    kept = 0
    for key, file in itertools.islice(built.items(), MAX_LIBRARIES):
        path = worker.build_folder / Path(file).name
        try:
            kept += cache.keep(solution.digest, key, path)
            cache.keep(solution.digest, key, path.with_suffix(FIGURES))
        except OSError as error:
            logger.warning("cannot write the build cache, so the next run builds again: %s", error)
    if kept < len(built):
        logger.warning("did not cache %d of %d builds of %s", len(built) - kept, len(built), one_line(solution.name))
    for key, (message, log) in itertools.islice(worker.refused.items(), MAX_LIBRARIES):
        if is_lasting(message, log):
            with contextlib.suppress(OSError):  # the next run compiles again
                cache.keep_refusal(solution.digest, key, message, log)
