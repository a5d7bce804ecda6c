"""Many evaluations on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable

from harness.executors.lanes import Lanes
from harness.executors.plan import Job, Plans
from harness.executors.prebuild import most_builders
from harness.executors.result_cache import ResultCache
from harness.executors.scheduler import Asked, Fault, Judged, KeptRecord, RequestSource, Scheduler
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
) -> Generator[KeptRecord | Fault]:
    """Judge all jobs; a bad candidate or problem never affects another.

    What the store knows already is taken from there; every other record is in the store before it is yielded. Builds
    run ahead, and who is built comes first; else it goes in order.

    Args:
        jobs: What to judge; a next one is asked for when there is room.
        policy: How.
        lanes: Processes that judge, each on a device.
        ledger: The store.
        progress: Called with a word for what happens now.
        confirms: Nothing is answered from the store; what it knows to have passed is judged in one trial more.
        ahead: How many jobs may be asked for before it is their turn; two for each builder by default.
        source: Where jobs come from; None where a next one never has to be waited for.
        done: Called with a job that has been judged.
        plans: What is known of problems' sizes; more is added to it.

    Yields:
        For each candidate and case, as soon as it is there, a record, or the error of a problem that does not run.

    Raises:
        StoreError: A record could not be kept.
        DeviceError: After a candidate failed, the GPU does not work any more, and there is no other.
    """
    ahead = 2 * most_builders() if ahead is None else ahead
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
        )
        outcomes = lanes.judge(feed, progress, builders, source)
        for outcome in stack.enter_context(contextlib.closing(outcomes)):
            if isinstance(outcome, Judged):
                job = outcome.work.job
                yield KeptRecord(ledger.keep(job.candidate, outcome.record), stored=False, tag=job.tag)
            else:
                yield outcome
