"""The one list of cases: what each level asks of an engine, in order.

Front ends take it from here: the tests, `rlxweb smoke`, and the site's check page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from rlxweb.backends.protocol import Backend
from rlxweb.cost.graph_work import asked_of
from rlxweb.ir.op import Op
from rlxweb.limits import shrunk
from rlxweb.smoke.case import Case, Family, Level, checked_ops, plain
from rlxweb.smoke.chains import QUICK_SHAPES, SHAPES, chain_cases
from rlxweb.smoke.edge_questions import EDGES
from rlxweb.smoke.edges import edge_cases
from rlxweb.smoke.pattern import Pattern
from rlxweb.smoke.random_graphs import graph_cases
from rlxweb.smoke.shapes import over_the_binding, shape_cases
from rlxweb.smoke.special import elementwise_cases, odd_cases
from rlxweb.smoke.verdict import MOST_RUNS
from rlxweb.smoke.views import through_views

GRAPHS: dict[Level, int] = {"quick": 24, "standard": 200, "full": 1000}
WARM: dict[Level, int] = {"quick": 1, "standard": 3, "full": MOST_RUNS}
"""Runs after the first of a case, for its warm time."""
_FEW = 2
_MOST_BINDING = 256 << 20
"""A device that binds more at once is asked for no array larger than that."""
_AN_OP: dict[Level, int] = {"quick": _FEW, "standard": 1000, "full": 1000}


def samples(backend: Backend, level: Level) -> Iterator[Case]:
    """Every sample of every op; at the full level also as written, without rewrites."""
    for op in checked_ops():
        yield from plain(op)
        if level == "full":
            for case in plain(op):
                yield replace(case, name=f"{case.name}/as-written", optimise=False)


def views(backend: Backend, level: Level) -> Iterator[Case]:
    """Small samples through views; a few of each op at the quick level."""
    for op in checked_ops():
        yield from islice(through_views(op), _AN_OP[level])


def special(backend: Backend, level: Level) -> Iterator[Case]:
    """Values that are no ordinary numbers."""
    yield from elementwise_cases((1,) if level == "quick" else (0, 1))
    if level != "quick":
        yield from odd_cases()


def edges(backend: Backend, level: Level) -> Iterator[Case]:
    """What is promised at the edges of arithmetic, and what is not."""
    return edge_cases(EDGES)


def shapes(backend: Backend, level: Level) -> Iterator[Case]:
    """Shapes chosen to hurt; the samples have the worst of them already."""
    if level != "quick":
        yield from shape_cases(level)


def variants(backend: Backend, level: Level) -> Iterator[Case]:
    """Every kernel variant that fits the device, forced one by one."""
    for op in checked_ops():
        done: dict[str, int] = {}
        for case in plain(op):
            for variant in _fitting(op, case, backend):
                done[variant] = done.get(variant, 0) + 1
                if done[variant] <= _AN_OP[level]:
                    yield _by(case, variant)


def _fitting(op: Op, case: Case, backend: Backend) -> tuple[str, ...]:
    graph = case.make().graph
    if not backend.target.holds(graph):
        return ()
    asked = asked_of(graph, graph.node(graph.outputs[0]))
    return backend.variants_for(*asked)


def _by(case: Case, variant: str) -> Case:
    """The case run by that variant."""
    short = variant.removeprefix(f"{case.op}, ").replace(" ", "-").replace(",", "")
    name = f"variants/{case.name.partition('/')[2]}/{short}"
    return replace(case, name=name, family="variants", variant=variant)


def chains(backend: Backend, level: Level) -> Iterator[Case]:
    """Chains of ops that fuse."""
    return chain_cases(QUICK_SHAPES if level == "quick" else SHAPES)


def graphs(backend: Backend, level: Level) -> Iterator[Case]:
    """Random graphs, the same for every engine."""
    return graph_cases(GRAPHS[level])


def limits(backend: Backend, level: Level) -> Iterator[Case]:
    """Small samples on the same device as if it were tiny: all is split and folded."""
    has = backend.target.limits
    if has is None or level == "quick":
        return
    for op in checked_ops():
        for case in islice(plain(op), _FEW if level == "standard" else None):
            name = f"limits/{case.name.partition('/')[2]}"
            yield replace(case, name=name, family="limits", limits=shrunk())
    most = has.max_storage_buffer_binding_size
    if level == "full" and most <= _MOST_BINDING:
        yield from over_the_binding(most)


FAMILIES: dict[Family, Callable[[Backend, Level], Iterator[Case]]] = {
    "samples": samples,
    "views": views,
    "special": special,
    "edges": edges,
    "shapes": shapes,
    "variants": variants,
    "chains": chains,
    "graphs": graphs,
    "limits": limits,
}


def page_cases() -> Iterator[Case]:
    """The quick cases that are the same for every engine: the site's check page."""
    for op in checked_ops():
        yield from plain(op)
        yield from islice(through_views(op), _FEW)
    yield from elementwise_cases((1,))
    yield from chain_cases(QUICK_SHAPES)
    yield from graph_cases(GRAPHS["quick"])


def cases(backend: Backend, level: Level, pattern: Pattern) -> list[Case]:
    """The cases of a level for an open engine, those the pattern picks."""
    return [
        case
        for family in FAMILIES
        if pattern.may_match(f"{family}/")  # making the cases of a family is slow
        for case in FAMILIES[family](backend, level)
        if pattern(case.name)
    ]
