"""Who of a cluster works on a run, what each of them holds, and who is left out.

A worker is asked for its versions, and for the device where one was asked for, before
it is given anything: those that are there at the beginning and those that join later
alike. Owns how much a worker holds at a time. Knows of a piece of work its name only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import version

from rlxweb.dask.post import Answer, Left, Post
from rlxweb.dask.there import look_at_device
from rlxweb.dask.workers import (
    ALIKE,
    WorkerFacts,
    apart,
    grouped,
    known,
    nobody,
    with_versions,
)
from rlxweb.errors import ClusterError, RlxError
from rlxweb.jobs.settings import Settings

Tell = Callable[[str], object]

# Failures of a worker's own, one after another, after which it is given nothing more.
MOST_FAULTS = 3
# Workers of one machine that may end while they open a device.
_MOST_DEATHS_AT_THE_DOOR = 3
# What a worker holds for each of its threads: the one at work and the next.
_DEEP = 2


@dataclass(slots=True)
class Member:
    """A worker that works on the run.

    holds   keys of what it was given and is not done, in their order
    faults  recordings that failed there, for a reason of its own, since its last
            success; and `why` the last did
    """

    address: str
    facts: WorkerFacts
    holds: dict[str, None] = field(default_factory=dict)
    faults: set[str] = field(default_factory=set)
    why: str = ""

    @property
    def at_work(self) -> list[str]:
        """The keys it is working on: what came first, one per thread."""
        return list(self.holds)[: self.facts.nthreads]


class Crew:
    """The workers of one run.

    members   by address; those that may be given work
    left_out  by address, why the others may not
    has_worked  was there ever one who may
    """

    def __init__(self, post: Post, settings: Settings, tell: Tell) -> None:
        self._post, self._settings, self._tell = post, settings, tell
        self.members: dict[str, Member] = {}
        self.left_out: dict[str, str] = {}
        self._untold: dict[str, str] = {}
        self._faulty: dict[str, Member] = {}
        self._at_the_door: dict[str, Member] = {}
        self._deaths_at_the_door: dict[str, int] = {}
        self._only_versions = True
        self.has_worked = False
        self._meet(known(post.client))

    # --- who comes and goes ---------------------------------------------------------

    def joined(self, addresses: Iterable[str]) -> None:
        """Workers that came later."""
        here = {*self.members, *self.left_out, *self._asked}
        new = [address for address in addresses if address not in here]
        if new:
            self._meet(known(self._post.client, new))

    def _meet(self, found: dict[str, WorkerFacts]) -> None:
        """Ask whether they compute the same as we do."""
        for address, one in found.items():
            key = self._post.ask(address, version, ALIKE)
            self._at_the_door[key] = Member(address, one)

    def missing_in(self, there: set[str]) -> list[str]:
        """Of those that work, or are asked about themselves, who is gone."""
        return [a for a in (*self.members, *self._asked) if a not in there]

    @property
    def _asked(self) -> set[str]:
        return {member.address for member in self._at_the_door.values()}

    def _let_in(self, member: Member) -> None:
        if self._settings.asked_device == "auto":
            self._take_on(member)
            return
        host = member.facts.host
        if self._deaths_at_the_door.get(host, 0) >= _MOST_DEATHS_AT_THE_DOOR:
            asked = self._settings.asked_device
            self._only_versions = False
            self._leave_out(
                {member.address: f"workers on {host} end when they open {asked!r}"}
            )
            return
        key = self._post.send(
            "rlxweb-device", member.address, look_at_device, self._settings
        )
        self._at_the_door[key] = member

    def _take_on(self, member: Member) -> None:
        self.members[member.address] = member
        self.has_worked = True
        self._leave_out_faulty()

    def answered(self, answer: Answer) -> bool:
        """Was this a worker's word about itself? It is taken in, or left out."""
        member = self._at_the_door.pop(answer.key, None)
        if member is None:
            return False
        if not member.facts.versions:
            self._answered_versions(member, answer)
        elif answer.error is None and answer.value is None:
            self._take_on(member)
        else:
            why = answer.value or answer.error
            self._only_versions = False
            said = why.with_flags if isinstance(why, RlxError) else repr(why)
            self._leave_out({member.address: said})
        self._tell_who_is_left_out()
        return True

    def _answered_versions(self, member: Member, answer: Answer) -> None:
        answers = answer.value if isinstance(answer.value, list) else []
        member.facts = with_versions(
            member.facts, answers or [answer.error] * len(ALIKE)
        )
        if why := apart(member.facts):
            self._leave_out({member.address: why})
        else:
            self._let_in(member)

    def left(self, gone: Left) -> tuple[list[str], list[str]]:
        """A worker is gone: the keys it was working on, and those it only held."""
        for key, member in list(self._at_the_door.items()):
            if member.address == gone.address:
                del self._at_the_door[key]
                self._post.take_back([key])
                host = member.facts.host
                is_over_it = bool(member.facts.versions) and not gone.expected
                deaths = self._deaths_at_the_door.get(host, 0)
                self._deaths_at_the_door[host] = deaths + is_over_it
        self._tell_who_is_left_out()
        self.left_out.pop(gone.address, None)
        self._faulty.pop(gone.address, None)
        member_gone = self.members.pop(gone.address, None)
        if member_gone is None:
            return [], []
        # What was done, and is lost with its worker, is not what the worker ended over.
        undone = [key for key in member_gone.holds if key in gone.undone]
        at_work = [] if gone.expected else undone[: member_gone.facts.nthreads]
        return at_work, [key for key in member_gone.holds if key not in at_work]

    def _leave_out(self, refused: dict[str, str]) -> None:
        self.left_out |= refused
        self._untold |= refused
        self._tell_who_is_left_out()

    def _tell_who_is_left_out(self) -> None:
        """Once all have told their versions: a line per reason, not per worker."""
        if all(member.facts.versions for member in self._at_the_door.values()):
            for line in grouped(self._untold):
                self._tell(f"left out {line}")
            self._untold.clear()

    # --- who is given work ----------------------------------------------------------

    @property
    def is_looking(self) -> bool:
        """Is there a worker of whom too little is known yet?"""
        return bool(self._at_the_door)

    @property
    def n_threads(self) -> int:
        """Of all that may be given work."""
        return sum(member.facts.nthreads for member in self.members.values())

    def nobody(self) -> ClusterError:
        """Every worker that there is was left out."""
        return nobody(self.left_out, same_versions=self._only_versions)

    def free(self, n_waiting: int) -> list[Member]:
        """Who may be given more of what waits: who holds least comes first.

        A second one for a thread that is at work is only given while there is enough
        for all, so that at the end nothing waits behind a long one.
        """
        deep = _DEEP if n_waiting > self.n_threads else 1
        free = [m for m in self.members.values() if _share(m) < deep]
        return sorted(free, key=_share)

    def may_find_another(self, tried: Iterable[str]) -> bool:
        """Is there a worker besides those, or may there be one in a moment?"""
        return self.is_looking or bool(self.members.keys() - set(tried))

    def waiting_behind(self) -> str | None:
        """The key of a piece that waits while another worker has nothing to do."""
        if not any(_share(member) < 1 for member in self.members.values()):
            return None
        held = max(self.members.values(), key=_share)
        return list(held.holds)[-1] if _share(held) > 1 else None

    def faulted(self, member: Member, recording: str, why: str) -> None:
        """A failure of a worker's own; the last that is left is never left out."""
        member.faults.add(recording)
        member.why = why
        self._leave_out_faulty()

    def excuse(self, recording: str) -> None:
        """It fails on others just so: no worker is to blame, or left out, for it."""
        for member in (*self.members.values(), *self._faulty.values()):
            member.faults.discard(recording)
        for address, member in list(self._faulty.items()):
            if len(member.faults) < MOST_FAULTS:
                del self._faulty[address], self.left_out[address]
                self.members[address] = member
                self._tell(f"took worker {address} back: others fail on the same")

    def _leave_out_faulty(self) -> None:
        for address, member in list(self.members.items()):
            if len(member.faults) >= MOST_FAULTS and len(self.members) > 1:
                self._faulty[address] = self.members.pop(address)
                self._only_versions = False
                said = f"{MOST_FAULTS} recordings in a row failed there: {member.why}"
                self._leave_out({address: said})


def _share(member: Member) -> float:
    """How many pieces it holds for each of its threads."""
    return len(member.holds) / member.facts.nthreads
