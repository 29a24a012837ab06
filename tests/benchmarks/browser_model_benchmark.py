"""`python -m tests.benchmarks.browser_model_benchmark`: networks in rlxweb and in
onnxruntime-web.

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
from rlxweb.select.calibration.stopwatch import timing_from_samples
from tests.benchmarks import model_files, report
from tests.benchmarks.benchmark_cells import CellResult, Goal, PeerResult, judge_goals
from tests.benchmarks.benchmark_site_server import (
    FLAGS,
    ISOLATION_HEADERS,
    START_MS,
    chromium_path,
    serve_site,
)
from tests.benchmarks.machine_facts import collect_facts
from tests.benchmarks.model_cells import check_agreement
from tests.benchmarks.model_files import Arrays, BenchmarkModel
from tests.benchmarks.npm_packages import ONNX_RUNTIME, ROOT, unpack_package
from tests.benchmarks.peer_libraries import load_library

MIN_ROUNDS = 7
BUDGET_MS = 60_000
"""Time after which no further round starts, except for the minimum."""
GPU_PEER, CPU_PEER = "rlxweb, webgpu", "rlxweb, NumPy"
ORT_NAME = ONNX_RUNTIME.name
ORT_FILE_ENDINGS = (".min.mjs", ".asyncify.mjs", ".jsep.mjs", "-threaded.mjs", ".wasm")
GOALS = (
    Goal(GPU_PEER, (f"{ORT_NAME}, webgpu", f"{ORT_NAME}, webgpu by JSEP"), 1.0),
    Goal(CPU_PEER, (f"{ORT_NAME}, wasm", f"{ORT_NAME}, wasm, 2 threads"), 1.0),
)
PageReport = Mapping[str, Any]


def main(args: Sequence[str] | None = None) -> int:
    """Return 0 when no answer was wrong, else 1."""
    arguments = build_parser().parse_args(args)
    site = Path(arguments.site)
    if not (site / "runtime").is_dir():
        sys.exit(f"{site} holds no built site; run ./dev site first")
    selected = {
        n: k
        for n, k in model_files.installed_models().items()
        if _contains_any(arguments.only, n)
    }
    console = report.create_console(to_stderr=False)
    for name, why in model_files.missing_models().items():
        console.print(f"no models of {name}: {why}", style="yellow")
    cells, all_page_facts = [], []
    with tempfile.TemporaryDirectory() as work_dir:
        files, expected = Path(work_dir) / "files", {}
        for index, (name, model) in enumerate(selected.items()):
            expected[name] = write_model_files(model, files / str(index))
        with open_browser(site, Path(work_dir)) as (url, browser):
            for index, (name, model) in enumerate(selected.items()):
                peer_reports, page_facts = measure_in_page(
                    browser, url, index, model, arguments.rounds
                )
                cells.append(check_peers(f"tab {name}", peer_reports, expected[name]))
                all_page_facts.append(page_facts)
                report.print_cell(console, cells[-1])
        document = report.document(
            cells,
            page_machine_facts(all_page_facts, browser.version),
            {
                "rounds": arguments.rounds,
                "least": MIN_ROUNDS,
                "up_ms": _median_start_ms(all_page_facts),
            },
        )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    return int(bool(document["wrong"]))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.browser_model_benchmark")
    parser.add_argument("--site", default=str(ROOT / "build" / "site"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", metavar="FILE", help="write the record there")
    parser.add_argument("--only", action="append", default=[], metavar="PART")
    return parser


def _contains_any(parts: Sequence[str], name: str) -> bool:
    return not parts or any(part in name for part in parts)


@contextmanager
def open_browser(site: Path, work_dir: Path) -> Iterator[tuple[str, Browser]]:
    """Yield the address of the served site, and a browser."""
    ort_folder = unpack_package(ONNX_RUNTIME, work_dir, ORT_FILE_ENDINGS)
    with (
        serve_site(
            site, {"ort": ort_folder, "files": work_dir / "files"}, ISOLATION_HEADERS
        ) as url,
        sync_playwright() as playwright,
    ):
        path = chromium_path()
        browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS])
        try:
            yield url, browser
        finally:
            browser.close()


def write_model_files(benchmark_model: BenchmarkModel, folder: Path) -> Arrays:
    """Write both files of a network.

    returns  its answers, by our engine of the desktop's CPU
    """
    folder.mkdir(parents=True)
    file = benchmark_model.load_bytes()
    (folder / "model.onnx").write_bytes(file)
    with rlx.onnx.load(file) as model:
        converted = model.imported(benchmark_model.inputs)
        names = {out.at: name for name, out in converted.outputs.items()}
        params = {name: weight.array for name, weight in converted.params.items()}
        path, outputs = folder / "model.rlxg", [names[index] for index in sorted(names)]
        converted.graph.save(path, params, outputs=outputs)
        return model.run(benchmark_model.inputs, device="cpu")


def measure_in_page(
    browser: Browser, url: str, index: int, model: BenchmarkModel, rounds: int
) -> tuple[list[PageReport], PageReport]:
    """Measure every peer in a new page; return their reports and the page's facts."""
    page = browser.new_page()
    try:
        page.goto(f"{url}_bench/networks.html")
        page.wait_for_function("globalThis.isReady", timeout=START_MS)
        request = {
            "inputs": [{"name": n, **encode_array(a)} for n, a in model.inputs.items()],
            "model": f"files/{index}/model.onnx",
            "graph": f"files/{index}/model.rlxg",
            "tiny": base64.b64encode(tiny_model()).decode(),
        }
        script = f"asked => network(asked, {rounds}, {MIN_ROUNDS}, {BUDGET_MS})"
        return page.evaluate(script, request), page.evaluate("facts()")
    finally:
        page.close()


def tiny_model() -> bytes:
    """Return an ONNX file with one op, to start a runtime with."""
    onnx: Any = load_library("onnx")
    helper, element_type = onnx.helper, onnx.TensorProto.FLOAT
    values = [helper.make_tensor_value_info(name, element_type, [4]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "tiny", values[:1], values[1:]
    )
    opset = [helper.make_opsetid("", model_files.OPSET)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return bytes(model.SerializeToString())


def encode_array(array: np.ndarray) -> dict[str, Any]:
    """Return an array as it is sent to and from the page."""
    packed = base64.b64encode(array.tobytes()).decode()
    return {"dtype": str(array.dtype), "dims": list(array.shape), "base64": packed}


def decode_array(encoded: PageReport) -> np.ndarray:
    """Return the array that a page sent."""
    flat = np.frombuffer(base64.b64decode(encoded["base64"]), encoded["dtype"])
    return flat.reshape(encoded["dims"])


def check_peers(
    name: str, peer_reports: Sequence[PageReport], expected: Arrays
) -> CellResult:
    """Return a cell's result from what the page measured.

    A peer that failed or is wrong has no row but a reason; a wrong answer of ours
    leaves no rows at all.
    """
    rows, absent_peers, our_errors = [], {}, []
    for peer_report in peer_reports:
        peer, is_ours = peer_report["name"], peer_report["name"] in (GPU_PEER, CPU_PEER)
        if "error" in peer_report:
            absent_peers[peer] = peer_report["error"]
            continue
        try:
            answers = {
                key: decode_array(encoded)
                for key, encoded in peer_report["answers"].items()
            }
            check_agreement(peer, answers, expected)
        except AssertionError as error:
            absent_peers[peer] = str(error)
            if is_ours:
                our_errors.append(str(error))
            continue
        sample_ns = [1e6 * ms for ms in peer_report["taken"]]
        timing = timing_from_samples(
            sample_ns, 1e6 * peer_report["first"], peer_report["calls"]
        )
        rows.append(PeerResult(peer, engine_name(peer), is_ours, timing, None))
    if our_errors:
        return CellResult(name, answer_error="; ".join(our_errors)[:400])
    return CellResult(
        name, tuple(rows), tuple(judge_goals(GOALS, rows)), absent_peers=absent_peers
    )


def engine_name(peer: str) -> str:
    """Return the name of what computes."""
    runtime, provider = peer.split(", ", 1)
    if runtime == ORT_NAME:
        return f"{ORT_NAME} ({provider})"
    return {GPU_PEER: "WebGPU", CPU_PEER: "NumPy"}[peer] + " (in Pyodide)"


def page_machine_facts(
    all_page_facts: Sequence[PageReport], version: str
) -> dict[str, Any]:
    """Return the machine's facts, with the tab's versions and adapters."""
    machine = collect_facts(("rlxweb",))
    if all_page_facts:
        tab_versions = all_page_facts[0]["versions"]
        machine["python"] = f"{tab_versions['python']} in the tab"
        machine["versions"] |= {"NumPy": tab_versions["numpy"]}
    machine["versions"] |= {ORT_NAME: ONNX_RUNTIME.version}
    machine["adapters"] = [
        {"name": name, "backend": "webgpu", "driver": f"Chromium {version}"}
        for name in sorted({page_facts["adapter"] for page_facts in all_page_facts})
    ]
    return machine


def _median_start_ms(all_page_facts: Sequence[PageReport]) -> dict[str, float]:
    """Return each runtime's median time to start, with its files in the browser's
    cache.
    """
    start_times = [page_facts["up"] for page_facts in all_page_facts]
    names = dict.fromkeys(name for up in start_times for name in up)
    return {n: round(median(up[n] for up in start_times if n in up), 1) for n in names}


if __name__ == "__main__":
    sys.exit(main())
