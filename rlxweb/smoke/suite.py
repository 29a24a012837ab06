"""List of the smoke test's cases by level, shared by the tests, the command and the
check page.

Front ends take it from here: the tests, `rlxweb smoke`, and the site's check page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from rlxweb.core.limits import tiny_limits
from rlxweb.engines.capabilities import HasVariants
from rlxweb.engines.protocol import Engine
from rlxweb.ir.graph import node_signature
from rlxweb.ir.op import Op
from rlxweb.smoke.boundary_shapes import binding_limit_cases, shape_cases
from rlxweb.smoke.case import Family, Level, SmokeCase, checked_ops, sample_cases
from rlxweb.smoke.case_name_pattern import NamePattern
from rlxweb.smoke.edge_case_table import EDGE_CASES
from rlxweb.smoke.edge_cases import edge_cases
from rlxweb.smoke.op_chain_cases import QUICK_SHAPES, SHAPES, chain_cases
from rlxweb.smoke.random_graphs import graph_cases
from rlxweb.smoke.special_value_cases import elementwise_cases, nonfinite_cases
from rlxweb.smoke.verdict import MAX_WARM_RUNS
from rlxweb.smoke.view_input_cases import view_cases

GRAPH_COUNTS: dict[Level, int] = {"quick": 24, "standard": 200, "full": 1000}
WARM_RUNS: dict[Level, int] = {"quick": 1, "standard": 3, "full": MAX_WARM_RUNS}
"""Number of runs after the first of a case, for its warm time."""
_FEW_CASES_PER_OP = 2
_MAX_TESTED_BINDING_NBYTES = 256 << 20
"""Largest binding limit for which an array beyond the limit is tested."""
_CASES_PER_OP: dict[Level, int] = {
    "quick": _FEW_CASES_PER_OP,
    "standard": 1000,
    "full": 1000,
}


def list_sample_cases(engine: Engine, level: Level) -> Iterator[SmokeCase]:
    """Yield every sample of every op; at the full level also without graph rewrites."""
    for op in checked_ops():
        yield from sample_cases(op)
        if level == "full":
            for case in sample_cases(op):
                yield replace(case, name=f"{case.name}/as-written", optimise=False)


def list_view_cases(engine: Engine, level: Level) -> Iterator[SmokeCase]:
    """Yield small samples through views; a few per op at the quick level."""
    for op in checked_ops():
        yield from islice(view_cases(op), _CASES_PER_OP[level])


def list_special_cases(engine: Engine, level: Level) -> Iterator[SmokeCase]:
    """Yield the cases of special values."""
    yield from elementwise_cases((1,) if level == "quick" else (0, 1))
    if level != "quick":
        yield from nonfinite_cases()


def list_edge_cases(engine: Engine, level: Level) -> Iterator[SmokeCase]:
    """Yield the arithmetic edge cases, guaranteed or not."""
    return edge_cases(EDGE_CASES)


def list_shape_cases(engine: Engine, level: Level) -> Iterator[SmokeCase]:
    """Yield cases at boundary shapes; none at the quick level."""
    if level != "quick":
        yield from shape_cases(level)


def list_variant_cases(engine: Engine, level: Level) -> Iterator[SmokeCase]:
    """Yield samples for every kernel variant that suits the device, forced one by
    one.
    """
    for op in checked_ops():
        counts: dict[str, int] = {}
        for case in sample_cases(op):
            for variant in _usable_variants(op, case, engine):
                counts[variant] = counts.get(variant, 0) + 1
                if counts[variant] <= _CASES_PER_OP[level]:
                    yield _with_variant(case, variant)


def _usable_variants(op: Op, case: SmokeCase, engine: Engine) -> tuple[str, ...]:
    """Return the kernel variants that the engine can run the case with."""
    graph = case.prepare().graph
    if not (isinstance(engine, HasVariants) and engine.target.supports_dtypes(graph)):
        return ()
    signature = node_signature(graph, graph.node(graph.outputs[0]))
    return engine.variants_for(*signature)


def _with_variant(case: SmokeCase, variant: str) -> SmokeCase:
    """Return the case with a forced kernel variant."""
    variant_slug = (
        variant.removeprefix(f"{case.op}, ").replace(" ", "-").replace(",", "")
    )
    name = f"variants/{case.name.partition('/')[2]}/{variant_slug}"
    return replace(case, name=name, family="variants", variant=variant)


def list_chain_cases(engine: Engine, level: Level) -> Iterator[SmokeCase]:
    """Yield chains of ops that fuse."""
    return chain_cases(QUICK_SHAPES if level == "quick" else SHAPES)


def list_graph_cases(engine: Engine, level: Level) -> Iterator[SmokeCase]:
    """Yield random graphs, the same for every engine."""
    return graph_cases(GRAPH_COUNTS[level])


def list_limit_cases(engine: Engine, level: Level) -> Iterator[SmokeCase]:
    """Yield small samples with tiny device limits, so that dispatches are split."""
    device_limits = engine.target.limits
    if device_limits is None or level == "quick":
        return
    for op in checked_ops():
        for case in islice(
            sample_cases(op), _FEW_CASES_PER_OP if level == "standard" else None
        ):
            name = f"limits/{case.name.partition('/')[2]}"
            yield replace(case, name=name, family="limits", limits=tiny_limits())
    max_binding_nbytes = device_limits.max_storage_buffer_binding_size
    if level == "full" and max_binding_nbytes <= _MAX_TESTED_BINDING_NBYTES:
        yield from binding_limit_cases(max_binding_nbytes)


FAMILIES: dict[Family, Callable[[Engine, Level], Iterator[SmokeCase]]] = {
    "samples": list_sample_cases,
    "views": list_view_cases,
    "special": list_special_cases,
    "edges": list_edge_cases,
    "shapes": list_shape_cases,
    "variants": list_variant_cases,
    "chains": list_chain_cases,
    "graphs": list_graph_cases,
    "limits": list_limit_cases,
}


def page_cases() -> Iterator[SmokeCase]:
    """Yield the quick cases that are the same for every engine, for the check page."""
    for op in checked_ops():
        yield from sample_cases(op)
        yield from islice(view_cases(op), _FEW_CASES_PER_OP)
    yield from elementwise_cases((1,))
    yield from chain_cases(QUICK_SHAPES)
    yield from graph_cases(GRAPH_COUNTS["quick"])


def select_cases(engine: Engine, level: Level, pattern: NamePattern) -> list[SmokeCase]:
    """Return the cases of a level for an open engine that match the pattern."""
    return [
        case
        for family in FAMILIES
        if pattern.may_match(f"{family}/")  # making the cases of a family is slow
        for case in FAMILIES[family](engine, level)
        if pattern(case.name)
    ]
