"""Run of one engine's cases, inside the child process or a browser tab.

Owns the order of the answers: what was opened, the names of the cases, each case before
it is begun and its row after. A blocking engine drives this; a tab awaits it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any

from rlxweb.engines.protocol import Engine
from rlxweb.smoke.case import SmokeCase
from rlxweb.smoke.case_name_pattern import parse_pattern
from rlxweb.smoke.fault_injection import FaultInjector
from rlxweb.smoke.result_rows import DEVICE_LOST_ERRORS, case_fields, result_row
from rlxweb.smoke.smoke_engine import engine_from_json, identity_fields, open_engine
from rlxweb.smoke.suite import WARM_RUNS, select_cases
from rlxweb.smoke.verdict import Verdict, check_case

SendMessage = Callable[..., None]
QUICK_TIME_S = 18.0
"""Time budget in seconds of an engine at the quick level; about 20 with process start.
"""


async def run_engine_cases(
    request: dict[str, Any], send: SendMessage, write: Callable[[str], object] = print
) -> None:
    """Open the requested engine, run its cases and send a message for each step.

    write   past all form, for the test hook

    Errors   AdapterMissing, DeviceLost, where it cannot be opened.
    """
    started_at = monotonic()
    smoke_engine, level = engine_from_json(request["engine"]), request["level"]
    sabotage = FaultInjector.parse(request["sabotage"], write)
    sabotage.apply_before_open(smoke_engine.key)
    engine = await open_engine(smoke_engine)
    send(opened=identity_fields(engine.identity))
    selected = select_cases(engine, level, parse_pattern(request["pattern"]))
    first_round_count = len(selected)
    if level == "quick":
        selected, first_round_count = order_broad_first(selected)
    send(cases=[case.name for case in selected])
    done = set(request["done"])
    for index, case in enumerate(selected):
        if case.name in done:
            continue
        if index >= first_round_count and monotonic() - started_at > QUICK_TIME_S:
            send(enough=f"the quick level stops after {QUICK_TIME_S:.0f} s")
            break
        send(begun=case.name, described=case_fields(case))
        verdict = await _check_case_safely(case, engine, WARM_RUNS[level], sabotage)
        send(row=result_row(case, verdict))
        if isinstance(verdict.error, DEVICE_LOST_ERRORS) or engine.lost:
            send(lost=engine.lost or str(verdict.error))
            return
    await engine.close()


def order_broad_first(cases: Iterable[SmokeCase]) -> tuple[list[SmokeCase], int]:
    """Reorder the cases round by round; return them and the size of the first round.

    The first round has one case of every op in every family and of every kernel
    variant. The quick level runs it to its end, and the others while there is time.
    """
    last_rounds: dict[tuple[str, str, str], int] = {}
    by_round: list[tuple[int, SmokeCase]] = []
    for case in cases:
        group = (case.family, case.op, case.variant)
        last_rounds[group] = last_rounds.get(group, -1) + 1
        by_round.append((last_rounds[group], case))
    by_round.sort(key=lambda pair: pair[0])
    return [case for _, case in by_round], len(last_rounds)


async def _check_case_safely(
    case: SmokeCase, engine: Engine, warm_runs: int, sabotage: FaultInjector
) -> Verdict:
    """Check a case; an error outside the engine is a "wrong" verdict as well."""
    try:
        sabotage.apply_before_case(case.name)
        return await check_case(sabotage.corrupt_case(case), engine, None, warm_runs)
    except Exception as error:  # making the case, or judging it: ours, and told as such
        return Verdict("wrong", f"{type(error).__name__}: {error}", error)
