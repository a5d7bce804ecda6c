"""What importing a solution builds: asked for in the worker that is judged, or ahead of that in one that runs nothing.

Building ahead changes no verdict. Libraries go to the cache under the solution's own digest, as they do from the worker
that is judged; a compiler's refusal is told to that worker, which answers as if it had asked the compiler itself; and
a builder that hangs, crashes or lies is as if it had never been.
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
from harness.judge.process.handle import CandidateStopped, Clock, WorkerHandle
from harness.project.solutions import Solution
from harness.system.text import one_line
from harness.wire.commands import Load
from harness.wire.replies import Failed

#: What a candidate is doing that imports its solution.
IMPORTING = "importing the solution"
#: Message and log of what a compiler has refused, by build key.
Refused = Mapping[str, tuple[str, str]]
#: An honest worker's fits; what does not is not remembered.
MAX_REFUSED_CHARACTERS = 2 << 20
logger = logging.getLogger(__name__)


def load_command(solution: Solution, cache: BuildCache, check: str, refused: Refused = MappingProxyType({})) -> Load:
    """The command that has a worker import a solution, with what is known of its builds.

    Args:
        solution: The solution.
        cache: Libraries of earlier builds.
        check: The architecture where every access is to be checked; empty for no checks.
        refused: What a compiler has refused of it before.
    """
    cached = {key: str(path) for key, path in cache.libraries(solution.digest).items()}
    return Load(str(solution.path), cached, check, dict(refused))


def build_ahead(worker: WorkerHandle, solution: Solution, cache: BuildCache, policy: Policy) -> Refused:
    """Have a solution imported, for what that builds; the caller closes the worker.

    Args:
        worker: A confined one, which sees no GPU.
        solution: The solution.
        cache: Where libraries are kept.
        policy: How it will be judged.

    Returns:
        What a compiler refused, if it did.

    Raises:
        HarnessError: The worker does not start, or is not confined as it must be, or what it needs cannot be copied.
    """
    worker.start()
    if policy.require_confinement:
        worker.check_confined()
    reply = None
    with contextlib.suppress(CandidateStopped):  # the worker that is judged will find out by itself
        reply = worker.request(load_command(solution, cache, policy.check), Clock(*policy.granted), IMPORTING)
    keep_builds(worker, solution, cache)
    if not isinstance(reply, Failed) or reply.kind != "build" or not reply.build_key:
        return {}
    refused = {reply.build_key: (reply.message, reply.log)}
    return refused if len(json.dumps(refused)) <= MAX_REFUSED_CHARACTERS else {}


def keep_builds(worker: WorkerHandle, solution: Solution, cache: BuildCache) -> None:
    """Copy what a worker has built since the last time into the cache."""
    built, worker.built = worker.built, {}
    kept = 0
    for key, file in itertools.islice(built.items(), MAX_LIBRARIES):
        path = worker.build_folder / Path(file).name
        try:
            kept += cache.keep(solution.digest, key, path)
        except OSError as error:
            logger.warning("the build cache cannot be written, the next run builds again: %s", error)
    if kept < len(built):
        logger.warning("%d of %d builds of %s were not kept", len(built) - kept, len(built), one_line(solution.name))
