"""An engine tried, case by case: what a child process does, and what a tab does.

Owns the order of the answers: what was opened, the names of the cases, each case before
it is begun and its row after. A blocking engine drives this; a tab awaits it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any

from rlxweb.backends.protocol import Backend
from rlxweb.smoke.answers import LOST, described, row_of
from rlxweb.smoke.case import Case
from rlxweb.smoke.engine import engine_from, opened, told_of
from rlxweb.smoke.pattern import pattern_of
from rlxweb.smoke.sabotage import Sabotage
from rlxweb.smoke.suite import WARM, cases
from rlxweb.smoke.verdict import Verdict, check_case

Say = Callable[..., None]
ENOUGH_S = 18.0
"""Seconds of an engine at the quick level; about 20 with the start of its process."""


async def answer(
    asked: dict[str, Any], say: Say, write: Callable[[str], object] = print
) -> None:
    """Try the engine that is asked for.

    write   past all form, for the test hook

    Errors   AdapterMissing, DeviceLost, where it cannot be opened.
    """
    begun = monotonic()
    engine, level = engine_from(asked["engine"]), asked["level"]
    sabotage = Sabotage.of(asked["sabotage"], write)
    sabotage.before_opening(engine.key)
    backend = await opened(engine)
    say(opened=told_of(backend))
    every = cases(backend, level, pattern_of(asked["pattern"]))
    needed = len(every)
    if level == "quick":
        every, needed = broad_first(every)
    say(cases=[case.name for case in every])
    done = set(asked["done"])
    for at, case in enumerate(every):
        if case.name in done:
            continue
        if at >= needed and monotonic() - begun > ENOUGH_S:
            say(enough=f"{ENOUGH_S:.0f} s are enough at the quick level")
            break
        say(begun=case.name, described=described(case))
        found = await _checked(case, backend, WARM[level], sabotage)
        say(row=row_of(case, found))
        if isinstance(found.raised, LOST) or backend.lost:
            say(lost=backend.lost or str(found.raised))
            return
    await backend.close()


def broad_first(cases: Iterable[Case]) -> tuple[list[Case], int]:
    """The same cases round by round, and how many the first round has.

    The first round has one case of every op in every family and of every kernel
    variant. The quick level runs it to its end, and the others while there is time.
    """
    counted: dict[tuple[str, str, str], int] = {}
    ranked: list[tuple[int, Case]] = []
    for case in cases:
        kind = (case.family, case.op, case.variant)
        counted[kind] = counted.get(kind, -1) + 1
        ranked.append((counted[kind], case))
    ranked.sort(key=lambda pair: pair[0])
    return [case for _, case in ranked], len(counted)


async def _checked(
    case: Case, backend: Backend, warm: int, sabotage: Sabotage
) -> Verdict:
    try:
        sabotage.before(case.name)
        return await check_case(sabotage.changed(case), backend, None, warm)
    except Exception as error:  # making the case, or judging it: ours, and told as such
        return Verdict("wrong", f"{type(error).__name__}: {error}", error)
