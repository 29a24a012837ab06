"""Products that Python's thread and Workers share, asked for in the tab.

Imported in Pyodide as `tests.browser.inside.shared_products`.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

import rlxweb as rlx
from rlxweb.backends.wasm_tails import shared_regions
from rlxweb.host import workers as module
from rlxweb.host.wasm_products import matmul
from rlxweb.host.workers import Workers, workers

SIZES = ((32, 384, 384), (1, 2000, 600), (97, 130, 100), (200, 64, 109), (90, 256, 65))
"""Rows, terms and columns: few and many, whole panels and not, a tail and none."""
START_S = 20.0


def network(rows: int, terms: int, columns: int) -> rlx.Graph:
    """gelu(x @ w + b), and what is added to it."""
    g = rlx.Graph("shared")
    x, more = g.input("x", (rows, terms)), g.input("more", (rows, columns))
    w, b = g.param("w", (terms, columns)), g.param("b", (columns,))
    g.set_outputs([g.gelu(x @ w + b) + more, x @ g.param("v", (terms, columns))])
    return g


def drawn(*sizes: int) -> dict[str, Any]:
    """What `network` reads."""
    rows, terms, columns = sizes
    draw = np.random.default_rng(sum(sizes))
    shapes = {
        "x": (rows, terms),
        "more": (rows, columns),
        "w": (terms, columns),
        "v": (terms, columns),
        "b": (columns,),
    }
    return {
        name: draw.standard_normal(shape).astype(np.float32) / 8
        for name, shape in shapes.items()
    }


def compiled(*sizes: int) -> tuple[Any, dict[str, Any]]:
    """`network` on the CPU, and its inputs."""
    given, made = drawn(*sizes), rlx.Session("cpu").compile(network(*sizes))
    for name in "wvb":
        made.set_param(name, given.pop(name))
    return made, given


def missed(found: Any, *sizes: int) -> float:
    """How far outputs are from NumPy's in float64."""
    of = {name: one.astype(np.float64) for name, one in drawn(*sizes).items()}
    g = rlx.Graph("right")
    g.set_outputs([g.gelu(g.input("x", (sizes[0], sizes[2]), "f64"))])
    (right,) = rlx.Session("cpu").compile(g).run({"x": of["x"] @ of["w"] + of["b"]})
    both = right + of["more"], of["x"] @ of["v"]
    return max(
        float(np.abs(one - other).max()) for one, other in zip(found, both, strict=True)
    )


def forgotten() -> None:
    """The next who asks for Workers gets others, who know no region."""
    module._workers.cache_clear()
    shared_regions._made.clear()
    shared_regions._coming.clear()


def begun() -> Workers | None:
    """Two Workers, however many processors the machine has."""
    from pyodide.code import run_js

    if not module._workers.cache_info().currsize or workers() is None:
        forgotten()
        run_js(
            "Object.defineProperty(navigator, 'hardwareConcurrency', "
            "{ value: 3, configurable: true })"
        )
    return workers()


async def there() -> Workers:
    """The Workers, once one has started."""
    found = begun()
    assert found is not None
    end = perf_counter() + START_S
    while perf_counter() < end:
        if found.are_there:
            return found
        await asyncio.sleep(0)
    raise TimeoutError("no Worker of rlxweb's has started")


class Counted:
    """A context that counts jobs, and may spoil them before they are run."""

    def __init__(self, spoil: Callable[[Any], None] = lambda job: None) -> None:
        self.jobs, self._spoil, self._run = 0, spoil, Workers.run

    def __enter__(self) -> Counted:
        run, spoil = self._run, self._spoil

        def counted(asked: Workers, job: Any) -> bool:
            self.jobs += 1
            spoil(job)
            return run(asked, job)

        Workers.run = counted  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        Workers.run = self._run  # type: ignore[method-assign]


async def products() -> str:
    """Errors, jobs a run, and whether a product has the bits of one thread, by size.

    The product compared is one that nothing follows.
    """
    found = []
    begun()
    for sizes in SIZES:
        made, given = compiled(*sizes)
        await there()
        for _ in range(12):  # regions are made once they are worth it
            made.run(given)
        with Counted() as counted:
            outputs = made.run(given)
        same = np.array_equal(outputs[1], matmul(given["x"], drawn(*sizes)["v"]))
        found.append([missed(outputs, *sizes), counted.jobs, same])
    return json.dumps(found)


def used(there: Workers) -> int:
    """Bytes of the shared memory that somebody holds."""
    shelf = there._shelf
    return shelf.end - sum(size for _, size in shelf._free)


async def memory() -> str:
    """Bytes that are in use before a network, with it, and when it is gone; whether it
    is right with weights that were set anew.
    """
    one = await there()
    gc.collect()
    before, sizes = used(one), SIZES[0]
    made, given = compiled(*sizes)
    for _ in range(3):
        made.run(given)
    within = used(one)
    doubled = 2 * drawn(*sizes)["v"]
    made.set_param("v", doubled)
    for _ in range(3):
        _, turned = made.run(given)
    off = float(np.abs(turned - given["x"].astype(np.float64) @ doubled).max())
    del made
    gc.collect()
    return json.dumps([before, within, used(one), off])


async def faults() -> str:
    """A job that breaks is done without Workers, who are not asked again."""
    await there()
    sizes = SIZES[0]
    made, given = compiled(*sizes)
    for _ in range(3):
        made.run(given)

    def spoil(job: Any) -> None:
        job[-10:] = 1 << 31  # no such addresses

    with Counted(spoil) as counted:
        outputs = made.run(given)
    broken = counted.jobs
    with Counted() as counted:
        again = made.run(given)
    said = [broken, counted.jobs, missed(outputs, *sizes), missed(again, *sizes)]
    forgotten()
    return json.dumps(said)


def alone() -> str:
    """What a page that is not isolated computes: without Workers, the same answer."""
    from pyodide.code import run_js

    said = "Object.defineProperty(globalThis, 'crossOriginIsolated', "
    run_js(said + "{ value: false, configurable: true })")
    forgotten()
    try:
        made, given = compiled(*SIZES[0])
        is_none = workers() is None
        with Counted() as counted:
            for _ in range(3):
                outputs = made.run(given)
    finally:
        run_js(said + "{ value: true, configurable: true })")
        forgotten()
    return json.dumps([is_none, counted.jobs, missed(outputs, *SIZES[0])])
