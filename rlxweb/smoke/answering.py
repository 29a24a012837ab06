"""An engine tried, case by case: what a child process does, and what a tab does.

Owns the order of the answers: what was opened, the names of the cases, each case before
it is begun and its row after. A blocking engine drives this; a tab awaits it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from rlxweb.backends.protocol import Backend
from rlxweb.smoke.answers import LOST, described, row_of
from rlxweb.smoke.case import Case
from rlxweb.smoke.engine import engine_from, opened, told_of
from rlxweb.smoke.order import ENOUGH_S, broad_first
from rlxweb.smoke.pattern import pattern_of
from rlxweb.smoke.sabotage import Sabotage
from rlxweb.smoke.suite import WARM, cases
from rlxweb.smoke.verdict import Verdict, check_case

Say = Callable[..., None]


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


async def _checked(
    case: Case, backend: Backend, warm: int, sabotage: Sabotage
) -> Verdict:
    try:
        sabotage.before(case.name)
        return await check_case(sabotage.changed(case), backend, None, warm)
    except Exception as error:  # making the case, or judging it: ours, and told as such
        return Verdict("wrong", f"{type(error).__name__}: {error}", error)
