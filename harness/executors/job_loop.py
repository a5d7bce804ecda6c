"""Judges a list of jobs in a loop and keeps their records in the store."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable

from harness.executors.lanes import Lanes
from harness.executors.plan import Job, Plans
from harness.executors.result_cache import ResultCache
from harness.executors.scheduler import (
    Asked,
    Fault,
    Judged,
    KeptRecord,
    RequestSource,
    Scheduler,
    Withdrawals,
)
from harness.judge.policy import Policy

__all__ = ["Fault", "KeptRecord", "run"]


def run(
    jobs: Iterable[Asked],
    policy: Policy,
    lanes: Lanes,
    ledger: ResultCache,
    progress: Callable[[str], None],
    *,
    confirms: bool = False,
    ahead: int | None = None,
    source: RequestSource | None = None,
    done: Callable[[Job], None] = lambda _: None,
    plans: Plans | None = None,
    deadline: float | None = None,
    withdrawals: Withdrawals | None = None,
) -> Generator[KeptRecord | Fault]:
    """Judges all jobs; a bad candidate or problem never affects another.

    ``run`` takes known records from the store, and stores every new record before it yields it.
    Builds run ahead. A candidate that is built comes first; otherwise candidates run in order.

    Args:
        jobs: The jobs to judge; ``run`` asks for the next one when there is room.
        policy: The policy to judge by.
        lanes: The lanes, each on one device.
        ledger: The store.
        progress: Called with the name of the current step.
        confirms: Whether to ignore the store's answers and judge candidates that passed before in
            one more trial.
        ahead: The number of jobs to take before their turn; two for each builder by default.
        source: The source of jobs that arrive while lanes judge; None if all are known.
        done: Called with each finished job.
        plans: The cases of problems that fit the device; ``run`` adds to it.
        deadline: The time on the monotonic clock after which ``run`` does not wait for a job or a
            build if no lane judges; None for no limit.
        withdrawals: The source, if its requests may be withdrawn; None if not.

    Yields:
        A record for each candidate and case, or the error of a problem that does not run.

    Raises:
        StoreError: The store cannot keep a record.
        DeviceError: The last GPU no longer works after a candidate failed.
        TimeIsUp: The deadline has passed.
    """
    ahead = 2 * lanes.most_builders if ahead is None else ahead
    is_ready = source.is_ready if source is not None else lambda: True
    with contextlib.ExitStack() as stack:
        builders = None
        if ahead:
            builders = stack.enter_context(lanes.building(ahead))
        feed = Scheduler(
            jobs,
            policy,
            lanes.environment,
            ledger,
            builders,
            ahead=ahead,
            confirms=confirms,
            is_ready=is_ready,
            done=done,
            plans={} if plans is None else plans,
            kernels_of=lanes.cache.kernels,
        )
        outcomes = lanes.judge(feed, progress, builders, source, deadline, withdrawals=withdrawals)
        for outcome in stack.enter_context(contextlib.closing(outcomes)):
            if isinstance(outcome, Judged):
                job = outcome.work.job
                yield KeptRecord(ledger.keep(job.candidate, outcome.record), stored=False, tag=job.tag)
            else:
                yield outcome
