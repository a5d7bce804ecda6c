"""Many evaluations on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable

from harness.errors import ProblemError
from harness.executors.ahead import Builders, most_builders
from harness.executors.feed import Feed, Verdict
from harness.executors.lane import Lane
from harness.executors.ledger import Ledger
from harness.executors.plan import Job
from harness.executors.session import Session
from harness.judge.policy import Policy

__all__ = ["Verdict", "run"]


def run(
    jobs: Iterable[Job],
    policy: Policy,
    session: Session,
    ledger: Ledger,
    progress: Callable[[str], None],
    confirms: bool = False,
    ahead: int | None = None,
    is_ready: Callable[[], bool] = lambda: True,
    done: Callable[[Job], None] = lambda _: None,
) -> Generator[Verdict | ProblemError]:
    """Judge all jobs; a bad candidate or problem never affects another.

    What the store knows already is taken from there; every other record is in the store before it is yielded. Builds
    run ahead, and who is built comes first; else it goes in order.

    Args:
        jobs: What to judge; a next one is asked for when there is room.
        policy: How.
        session: The device and its workers.
        ledger: The store.
        progress: Called with a word for what happens now.
        confirms: Nothing is answered from the store; what it knows to have passed is judged in one trial more.
        ahead: How many jobs may be asked for before it is their turn; two for each builder by default.
        is_ready: Whether a next job is there without waiting for it.
        done: Called with a job that has been judged.

    Yields:
        For each candidate and case, as soon as it is there, a record, or the error of a problem that does not run.

    Raises:
        StoreError: A record could not be kept.
        DeviceError: After a candidate failed, the GPU does not work any more.
    """
    count = most_builders()
    ahead = 2 * count if ahead is None else ahead
    with contextlib.ExitStack() as stack:
        builders = stack.enter_context(Builders(session, policy, min(count, ahead))) if ahead else None
        lane = Lane(session, policy, builders.quiet if builders is not None else contextlib.nullcontext)
        feed = Feed(jobs, policy, session.surroundings.environment, ledger, builders, ahead, confirms, is_ready, done)
        while not feed.is_over:
            yield from feed.fill(idle=1)
            work = feed.take()
            if work is None:
                feed.wait()
                continue
            yield from feed.fill(idle=0)
            for outcome in lane.judge(work, progress):
                if isinstance(outcome, ProblemError):
                    yield outcome
                else:
                    yield Verdict(ledger.keep(work.job.candidate, outcome), stored=False, tag=work.job.tag)
            done(work.job)
