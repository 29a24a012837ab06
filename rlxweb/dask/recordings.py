"""The recordings of a run on a cluster: each is done, whatever happens to the workers.

Every recording is done once and comes home once. A worker is handed few tasks at a
time, the largest recordings first, so that a scheduler never holds more than the
cluster works on. What a worker held when it ended goes to others, and what it may have
ended over goes alone from then on. A recording that workers end over time and again is
given up; the others only ever wait. A scheduler that comes back finds the rest
submitted again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress

from distributed import Client

from rlxweb.dask.crew import Crew, Member
from rlxweb.dask.deaths import MOST_AMONG_OTHERS, MOST_DEATHS, Deaths
from rlxweb.dask.packing import Piece, Waiting
from rlxweb.dask.post import Answer, Joined, Left, Message, Post
from rlxweb.dask.there import Reports, analyse_there
from rlxweb.dask.workers import listed
from rlxweb.errors import ClusterLost, DeviceLost, RlxError, WorkerFailed
from rlxweb.jobs.settings import Settings
from rlxweb.jobs.spreading import Outcome

# Workers on which a recording may fail for reasons of theirs, until it is given up.
MOST_TRIES = 3
# How long is waited for a first worker, or for a scheduler to come back.
PATIENCE_S = 120.0
# How long a message is waited for before the cluster is looked at.
_LOOK_S = 0.5
_COUNT_S = 5.0
_CUT = "scheduler-connection-lost"  # Dask's word for it

Tell = Callable[[str], object]
Watch = Callable[[int], object]


def spread(
    files: Sequence[str],
    settings: Settings,
    client: Client,
    tell: Tell,
    *,
    watch: Watch = bool,
) -> Generator[tuple[str, Outcome], None, None]:
    """Every file with what came of it, as they are done.

    tell     is told what happens to workers and to the scheduler
    watch    is told how many workers there are, whenever that may have changed
    Errors   ClusterError where no worker can be used; ClusterLost where the scheduler
             or all workers are gone and stay away. What is wrong with a recording is
             its outcome.
    """
    run = _Run(files, settings, client, tell, watch)
    try:
        yield from run.outcomes()
    finally:
        run.close()


class _Run:
    def __init__(
        self,
        files: Sequence[str],
        settings: Settings,
        client: Client,
        tell: Tell,
        watch: Watch,
    ) -> None:
        self._settings, self._tell, self._watch = settings, tell, watch
        self._waiting = Waiting(files)
        self._given: dict[str, tuple[list[Piece], Member]] = {}
        self._deaths = Deaths()
        self._ended: list[tuple[str, Outcome]] = []
        self._client, self._own = client, False
        self._post = Post(client)
        try:
            self._crew = Crew(self._post, settings, tell)
        except BaseException:
            self._post.close()
            raise
        self._alone_since: float | None = None
        self._is_told_alone = False
        self._is_cut = False
        self._next_count = time.monotonic()

    def close(self) -> None:
        self._post.close()
        if self._own:
            with suppress(OSError, TimeoutError):
                self._client.close(timeout=_LOOK_S)

    def outcomes(self) -> Iterator[tuple[str, Outcome]]:
        while self._waiting or self._given:
            self._hand_out()
            self._watch(len(self._crew.members))
            for message in self._post.messages(_LOOK_S):
                self._take(message)
            yield from self._ended
            self._ended.clear()
            self._look()

    # --- handing out ----------------------------------------------------------------

    def _hand_out(self) -> None:
        if not self._waiting:
            self._even_out()
        given = True
        while given and self._post.is_open:
            given = False
            for member in self._crew.free(len(self._waiting)):
                task = self._waiting.task_for(
                    member.address, self._crew.n_threads, self._crew.may_find_another
                )
                if task:
                    self._give(task, member)
                    given = True

    def _give(self, task: list[Piece], member: Member) -> None:
        key = self._post.send(
            "rlxweb-recordings",
            member.address,
            analyse_there,
            [piece.one for piece in task],
            self._settings,
        )
        member.holds[key] = None
        self._given[key] = task, member

    def _even_out(self) -> None:
        """What waits behind a long one goes to a worker with nothing to do."""
        key = self._crew.waiting_behind()
        if key is not None:
            self._waiting.last(self._forget(key))

    def _forget(self, key: str) -> list[Piece]:
        """Take a task back from its worker."""
        task, member = self._given.pop(key)
        member.holds.pop(key, None)
        self._post.take_back([key])
        return task

    # --- what comes back ------------------------------------------------------------

    def _take(self, message: Message) -> None:
        if isinstance(message, Answer):
            if not self._crew.answered(message) and message.key in self._given:
                self._answered(message)
        elif isinstance(message, Joined):
            with suppress(OSError, TimeoutError):  # counted again before long
                self._crew.joined([message.address])
        else:
            self._left(message)

    def _answered(self, answer: Answer) -> None:
        member = self._given[answer.key][1]
        task = self._forget(answer.key)
        if isinstance(answer.value, Reports):
            self._reported(task, member, answer.value)
        elif _is_of_the_way(answer.error):
            # The scheduler forgot it, or is gone itself: nobody is to blame.
            self._is_cut |= getattr(answer.error, "reason", "") == _CUT
            self._waiting.first(task)
        else:
            for piece in reversed(task):
                self._failed(piece, member, _not_run(piece, answer.error))

    def _reported(self, task: list[Piece], member: Member, reports: Reports) -> None:
        done = len(reports.outcomes)
        if done:
            member.faults.clear()
        for piece, outcome in zip(task[:done], reports.outcomes, strict=True):
            self._ended.append((piece.one.named, outcome))
        if reports.failure is not None:
            self._waiting.first(task[done + 1 :])
            self._failed(task[done], member, reports.failure)

    def _failed(self, piece: Piece, member: Member, error: RlxError) -> None:
        """For a reason of the worker's; another is asked, as long as that is of use."""
        piece.tried.append(member.address)
        self._crew.faulted(member, piece.one.named, error.with_flags)
        if len({*piece.tried}) > 1:
            self._crew.excuse(piece.one.named)
        if len(piece.tried) < MOST_TRIES:
            self._waiting.first([piece])  # others tell who is to blame
        else:
            self._ended.append((piece.one.named, _given_up(piece, error)))

    def _left(self, gone: Left) -> None:
        at_work, held = self._crew.left(gone)
        if at_work or held:
            self._tell(f"worker {gone.address} is gone; others do what it held")
        for key in reversed(held):
            self._waiting.first(self._forget(key))
        for key in at_work:
            self._ended_over(self._forget(key), gone.address)

    def _ended_over(self, task: list[Piece], address: str) -> None:
        to_blame = self._deaths.note(task, address)
        self._waiting.last(piece for piece in task if piece not in to_blame)
        self._ended += [(piece.one.named, _deadly(piece)) for piece in to_blame]

    # --- the cluster itself ---------------------------------------------------------

    def _look(self) -> None:
        """See whether there is still somebody to do the rest."""
        if not self._post.is_open or self._is_cut:
            self._wait_for_scheduler()
        now = time.monotonic()
        if now >= self._next_count:
            self._next_count = now + _COUNT_S
            self._count()
        if self._crew.members or self._crew.is_looking or not self._waiting:
            self._alone_since = None
            return
        if self._crew.left_out and not self._crew.has_worked:
            raise self._crew.nobody()
        self._wait_for_workers()

    def _count(self) -> None:
        """Who is there: not every coming and going is heard of."""
        with suppress(OSError, TimeoutError):
            there = set(self._client.nthreads())
            for address in self._crew.missing_in(there):
                self._left(Left(address, frozenset(self._given), expected=False))
            self._crew.joined(there)

    def _wait_for_workers(self) -> None:
        now = time.monotonic()
        if self._alone_since is None:
            self._alone_since, self._is_told_alone = now, False
        alone_s = now - self._alone_since
        # After 3 s: where one dies another often comes at once.
        if alone_s >= PATIENCE_S / 40 and not self._is_told_alone:
            self._is_told_alone = True
            self._tell(
                "the cluster has no worker: start one with `dask worker "
                f"{self._post.address}`; waiting {PATIENCE_S:g} s"
            )
        if alone_s > PATIENCE_S:
            raise ClusterLost(
                f"work on the cluster at {self._post.address}",
                "it has no worker",
                f"waited {PATIENCE_S:g} s",
                f"start one with `dask worker {self._post.address}`",
            )

    def _wait_for_scheduler(self) -> None:
        """Everything that was given is submitted again where a scheduler comes back."""
        address = self._post.address
        self._tell(f"the scheduler at {address} is gone; waiting {PATIENCE_S:g} s")
        self._is_cut = False
        self._post.close()
        given = [piece for task, _ in self._given.values() for piece in task]
        self._given.clear()
        self._waiting.first(given)
        self._client = self._again(address)
        self._post = Post(self._client)
        self._crew = Crew(self._post, self._settings, self._tell)
        self._crew.has_worked = True
        self._tell(f"the scheduler at {address} is back")

    def _again(self, address: str) -> Client:
        """The client once it is connected again, or another in its place."""
        end = time.monotonic() + PATIENCE_S
        while (left := end - time.monotonic()) > 0:
            if self._client.status == "running":
                return self._client
            if self._client.status == "connecting":
                self._post.nap(_LOOK_S)
                continue
            with suppress(OSError, TimeoutError):
                security = self._client.security
                client = Client(address, timeout=min(left, 10), security=security)
                self._own = True
                return client
        raise ClusterLost(
            f"work on the cluster at {address}",
            "the scheduler is gone and did not come back",
            f"waited {PATIENCE_S:g} s",
            "start it at the same address and run this again",
        )


def _is_of_the_way(error: BaseException | None) -> bool:
    """Was an answer lost between here and there? No recording raises such a thing."""
    return isinstance(error, OSError) or not isinstance(error, Exception)


def _not_run(piece: Piece, error: BaseException | None) -> WorkerFailed:
    """What Dask raised in place of running the task."""
    said = " ".join(str(error).split())
    return WorkerFailed(
        f"welch of {piece.one.named!r}",
        f"the worker could not run it: {type(error).__name__}: {said}",
        hint="give every worker the same packages",
    )


def _given_up(piece: Piece, error: RlxError) -> Outcome:
    """The last of its errors; a lost device ends no run whose others are well."""
    if isinstance(error, DeviceLost):
        error = WorkerFailed(error.doing, error.problem, error.rule, error.hint)
    where = f"tried {MOST_TRIES} times, on {listed(list(dict.fromkeys(piece.tried)))}"
    error.rule = "; ".join(filter(None, (error.rule, where)))
    return error


def _deadly(piece: Piece) -> WorkerFailed:
    return WorkerFailed(
        f"welch of {piece.one.named!r}",
        f"{len(piece.over)} workers ended while they worked on it",
        f"the limit is {MOST_DEATHS}, or {MOST_AMONG_OTHERS} where as many end over "
        f"others; {listed(piece.over)}",
        "it may need more memory than a worker has (`--memory-limit` of `dask worker`),"
        " or crash what reads it; without a cluster the same recording shows which",
    )
