"""`python -m tests.benchmarks.networks_in_tab`: networks beside onnxruntime-web.

Each network in a page of its own, all peers of it in turns there: rlxweb on WebGPU and
on NumPy, from the file that `Graph.save` wrote; onnxruntime-web on WebGPU (both of its
ways) and in WebAssembly with one thread and two, from the file of ONNX. A call: arrays
of the page in, arrays of the page out. The first is a file's bytes loaded, compiled and
run once, by a runtime that has started. A peer that refuses has its reason there. Calls
of more than 5 s are timed three times, of more than 15 s once.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from playwright.sync_api import Browser, sync_playwright

import rlxweb as rlx
from rlxweb.calibration.stopwatch import timing_of
from tests.benchmarks import model_files, report
from tests.benchmarks.cells import Cell, Goal, Row, verdicts
from tests.benchmarks.libraries import library
from tests.benchmarks.machine import facts
from tests.benchmarks.model_cells import agree
from tests.benchmarks.model_files import Arrays, Known
from tests.benchmarks.npm_packages import ONNX_RUNTIME, ROOT, unpacked
from tests.benchmarks.tab_server import ALONE, FLAGS, START_MS, chromium_there, served

LEAST = 7
BUDGET_MS = 60_000
"""After which no further round is begun, but for the least."""
GPU, CPU = "rlxweb, webgpu", "rlxweb, NumPy"
THEIRS = ONNX_RUNTIME.name
THEIR_FILES = (".min.mjs", ".asyncify.mjs", ".jsep.mjs", "-threaded.mjs", ".wasm")
GOALS = (
    Goal(GPU, (f"{THEIRS}, webgpu", f"{THEIRS}, webgpu by JSEP"), 1.0),
    Goal(CPU, (f"{THEIRS}, wasm", f"{THEIRS}, wasm, 2 threads"), 1.0),
)
Told = Mapping[str, Any]


def main(args: Sequence[str] | None = None) -> int:
    """0 when no answer was wrong, else 1."""
    asked = parser().parse_args(args)
    site = Path(asked.site)
    if not (site / "runtime").is_dir():
        sys.exit(f"{site} holds no built site; run ./dev site first")
    chosen = {n: k for n, k in model_files.known().items() if _any_in(asked.only, n)}
    console = report.page(to_stderr=False)
    for name, why in model_files.missing().items():
        console.print(f"no models of {name}: {why}", style="yellow")
    cells, pages = [], []
    with tempfile.TemporaryDirectory() as work:
        files, right = Path(work) / "files", {}
        for at, (name, one) in enumerate(chosen.items()):
            right[name] = prepared(one, files / str(at))
        with opened(site, Path(work)) as (url, tab):
            for at, (name, one) in enumerate(chosen.items()):
                found, page = measured(tab, url, at, one, asked.rounds)
                cells.append(judged(f"tab {name}", found, right[name]))
                pages.append(page)
                report.show(console, cells[-1])
        made = report.document(
            cells,
            where(pages, tab.version),
            {"rounds": asked.rounds, "least": LEAST, "up_ms": _starts(pages)},
        )
    if asked.json:
        Path(asked.json).write_text(json.dumps(made, indent=1) + "\n", "utf-8")
    return int(bool(made["wrong"]))


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="tests.benchmarks.networks_in_tab")
    made.add_argument("--site", default=str(ROOT / "build" / "site"))
    made.add_argument("--rounds", type=int, default=9)
    made.add_argument("--json", metavar="FILE", help="write the record there")
    made.add_argument("--only", action="append", default=[], metavar="PART")
    return made


def _any_in(parts: Sequence[str], name: str) -> bool:
    return not parts or any(part in name for part in parts)


@contextmanager
def opened(site: Path, work: Path) -> Iterator[tuple[str, Browser]]:
    """The address of the served site, and a browser."""
    theirs = unpacked(ONNX_RUNTIME, work, THEIR_FILES)
    with (
        served(site, {"ort": theirs, "files": work / "files"}, ALONE) as url,
        sync_playwright() as playwright,
    ):
        path = chromium_there()
        browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS])
        try:
            yield url, browser
        finally:
            browser.close()


def prepared(one: Known, folder: Path) -> Arrays:
    """Write both files of a network.

    returns  its answers, by our engine of the desktop's CPU
    """
    folder.mkdir(parents=True)
    file = one.file()
    (folder / "model.onnx").write_bytes(file)
    with rlx.onnx.load(file) as model:
        made = model.imported(one.inputs)
        names = {out.at: name for name, out in made.outputs.items()}
        params = {name: weight.array for name, weight in made.params.items()}
        path, outputs = folder / "model.rlxg", [names[at] for at in sorted(names)]
        made.graph.save(path, params, outputs=outputs)
        return model.run(one.inputs, device="cpu")


def measured(
    browser: Browser, url: str, at: int, one: Known, rounds: int
) -> tuple[list[Told], Told]:
    """What a page of its own says of each peer, and of itself."""
    page = browser.new_page()
    try:
        page.goto(f"{url}_bench/networks.html")
        page.wait_for_function("globalThis.isReady", timeout=START_MS)
        asked = {
            "inputs": [{"name": n, **told(a)} for n, a in one.inputs.items()],
            "model": f"files/{at}/model.onnx",
            "graph": f"files/{at}/model.rlxg",
            "tiny": base64.b64encode(tiny()).decode(),
        }
        ask = f"asked => network(asked, {rounds}, {LEAST}, {BUDGET_MS})"
        return page.evaluate(ask, asked), page.evaluate("facts()")
    finally:
        page.close()


def tiny() -> bytes:
    """A file of ONNX with one op, for a runtime to start with."""
    onnx: Any = library("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    ends = [helper.make_tensor_value_info(name, kind, [4]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "tiny", ends[:1], ends[1:]
    )
    opset = [helper.make_opsetid("", model_files.OPSET)]
    made = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return bytes(made.SerializeToString())


def told(array: np.ndarray) -> dict[str, Any]:
    """An array as the page is told of it, and tells."""
    packed = base64.b64encode(array.tobytes()).decode()
    return {"dtype": str(array.dtype), "dims": list(array.shape), "base64": packed}


def heard(one: Told) -> np.ndarray:
    """The array that a page told."""
    flat = np.frombuffer(base64.b64decode(one["base64"]), one["dtype"])
    return flat.reshape(one["dims"])


def judged(name: str, found: Sequence[Told], right: Arrays) -> Cell:
    """A cell of what the page measured.

    A peer that failed or is wrong has no row but a reason; a wrong answer of ours
    leaves no rows at all.
    """
    rows, absent, wrong = [], {}, []
    for one in found:
        peer, ours = one["name"], one["name"] in (GPU, CPU)
        if "error" in one:
            absent[peer] = one["error"]
            continue
        try:
            answers = {key: heard(made) for key, made in one["answers"].items()}
            agree(peer, answers, right)
        except AssertionError as error:
            absent[peer] = str(error)
            if ours:
                wrong.append(str(error))
            continue
        taken = [1e6 * ms for ms in one["taken"]]
        timing = timing_of(taken, 1e6 * one["first"], one["calls"])
        rows.append(Row(peer, engine(peer), ours, timing, None))
    if wrong:
        return Cell(name, wrong="; ".join(wrong)[:400])
    return Cell(name, tuple(rows), tuple(verdicts(GOALS, rows)), absent=absent)


def engine(peer: str) -> str:
    """What computes, in words."""
    whose, way = peer.split(", ", 1)
    if whose == THEIRS:
        return f"{THEIRS} ({way})"
    return {GPU: "WebGPU", CPU: "NumPy"}[peer] + " (in Pyodide)"


def where(pages: Sequence[Told], version: str) -> dict[str, Any]:
    """The machine, with what computes in the tab in place of what does beside it."""
    machine = facts(("rlxweb",))
    if pages:
        inside = pages[0]["versions"]
        machine["python"] = f"{inside['python']} in the tab"
        machine["versions"] |= {"NumPy": inside["numpy"]}
    machine["versions"] |= {THEIRS: ONNX_RUNTIME.version}
    machine["adapters"] = [
        {"name": name, "backend": "webgpu", "driver": f"Chromium {version}"}
        for name in sorted({page["adapter"] for page in pages})
    ]
    return machine


def _starts(pages: Sequence[Told]) -> dict[str, float]:
    """What each runtime took to start, of its files in the browser's cache; medians."""
    every = [page["up"] for page in pages]
    names = dict.fromkeys(name for up in every for name in up)
    return {n: round(median(up[n] for up in every if n in up), 1) for n in names}


if __name__ == "__main__":
    sys.exit(main())
