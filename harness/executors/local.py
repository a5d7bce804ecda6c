"""Many evaluations on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable

from harness.errors import ProblemError
from harness.executors.ahead import most_builders
from harness.executors.feed import Fault, Feed, Judged, Source, Verdict
from harness.executors.lane import Lane
from harness.executors.lanes import Lanes
from harness.executors.ledger import Ledger
from harness.executors.plan import Job
from harness.executors.session import Session
from harness.judge.policy import Policy

__all__ = ["Fault", "Verdict", "run"]


def run(
    jobs: Iterable[Job],
    policy: Policy,
    place: Session | Lanes,
    ledger: Ledger,
    progress: Callable[[str], None],
    confirms: bool = False,
    ahead: int | None = None,
    source: Source | None = None,
    done: Callable[[Job], None] = lambda _: None,
) -> Generator[Verdict | Fault]:
    """Judge all jobs; a bad candidate or problem never affects another.

    What the store knows already is taken from there; every other record is in the store before it is yielded. Builds
    run ahead, and who is built comes first; else it goes in order.

    Args:
        jobs: What to judge; a next one is asked for when there is room.
        policy: How.
        place: The device and its workers, to judge in this process; or lanes, processes that each have a device.
        ledger: The store.
        progress: Called with a word for what happens now.
        confirms: Nothing is answered from the store; what it knows to have passed is judged in one trial more.
        ahead: How many jobs may be asked for before it is their turn; two for each builder by default.
        source: Where jobs come from; None where a next one never has to be waited for.
        done: Called with a job that has been judged.

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
            builders = stack.enter_context(place.building(ahead))
        feed = Feed(jobs, policy, place.environment, ledger, builders, ahead, confirms, is_ready, done)
        if isinstance(place, Lanes):
            outcomes = place.judge(feed, progress, builders, source)
        else:
            quiet = builders.quiet if builders is not None else contextlib.nullcontext
            outcomes = _one_after_another(Lane(place, quiet), feed, progress)
        for outcome in stack.enter_context(contextlib.closing(outcomes)):
            if isinstance(outcome, Judged):
                job = outcome.work.job
                yield Verdict(ledger.keep(job.candidate, outcome.record), stored=False, tag=job.tag)
            else:
                yield outcome


def _one_after_another(lane: Lane, feed: Feed, progress: Callable[[str], None]) -> Generator[Verdict | Judged | Fault]:
    """Judge in this process."""
    while not feed.is_over:
        yield from feed.fill(idle=1)
        work = feed.take()
        if work is None:
            feed.wait()
            continue
        yield from feed.known_by_now(work)
        yield from feed.fill(idle=0)
        for outcome in lane.judge(work, progress):
            yield Fault(outcome, work.job.tag) if isinstance(outcome, ProblemError) else Judged(work, outcome)
        feed.finish(work)
