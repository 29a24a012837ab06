"""Check the wheel in a browser tab: graphs and Welch peaks against NumPy in float64.

Samples of every op are checked in test_gpu_check_page.py, through the page for
visitors.
"""

from __future__ import annotations

import base64
import io
import math
import textwrap
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.signal.learned.learn import learn_welch
from tests.browser.conftest import Tab
from tests.suite_tiers import thin_out_cases

pytestmark = pytest.mark.requires_browser

GRAPH_COUNT = 96
PART_COUNT = 8


def test_nothing_but_numpy_is_loaded(tab: Tab) -> None:
    """A tab loads nothing but NumPy, neither at import nor by a run."""
    modules = tab.run(
        """
        import json, sys
        import numpy as np, rlxweb as rlx
        await rlx.open_async("webgpu")
        rlx.welch_peaks(np.ones((2, 512), np.float32), device="cpu", k=2)
        known = set(sys.stdlib_module_names) | {"numpy", "rlxweb", "tests"}
        # cython_runtime is what numpy.random brings along
        ours = {"js", "pyodide", "pyodide_js", "_pyodide", "cython_runtime"}
        tops = {name.split(".")[0] for name in sys.modules}
        json.dumps(sorted(t for t in tops - known - ours if not t.startswith("_")))
        """
    )
    assert modules == []


def test_imported_modules_have_compiled_bytecode(tab: Tab) -> None:
    """The site ships the compiled bytecode of every module where Python looks for
    it.
    """
    result = tab.run(
        """
        import json, os, sys
        import numpy as np, rlxweb as rlx
        rlx.welch_peaks(np.ones((2, 512), np.float32), device="cpu", k=2)
        specs = [m.__spec__ for n, m in sys.modules.items() if n.startswith("rlxweb")]
        missing = [s.name for s in specs if not os.path.exists(s.cached)]
        json.dumps([len(specs), missing])
        """
    )
    assert result[0] > 100
    assert result[1] == []


def test_the_report_names_the_adapter(tab: Tab) -> None:
    """The report names the adapter, and why the other devices are not there."""
    rows = tab.run(
        """
        import json
        import rlxweb as rlx
        await rlx.open_async("webgpu")
        json.dumps([row.as_json() for row in rlx.device_report()])
        """
    )
    by_label = {row["device"]: row for row in rows}
    assert by_label["webgpu"]["available"]
    assert "swiftshader" in by_label["webgpu"]["engine"].lower()
    assert by_label["webgpu"]["facts"]["limits"]["max_buffer_size"] >= 256 << 20
    assert by_label["cpu"]["available"]
    assert "use 'webgpu'" in by_label["vulkan"]["blocker"]


def test_special_values_match_numpy_on_browser_gpu(worker_tab: Tab) -> None:
    """NaN, infinity, the largest numbers, and sums that could be simplified are as in
    NumPy.
    """
    result = worker_tab.run("await tab_functions.special_values()")
    assert result["wrong"] == []
    assert result["cases"] > 70


@pytest.mark.parametrize("part", thin_out_cases(range(PART_COUNT), PART_COUNT))
def test_random_graphs_are_right(worker_tab: Tab, part: int) -> None:
    """96 random graphs in all are right, at the adapter's limits and at tiny ones."""
    graphs_per_part = GRAPH_COUNT // PART_COUNT
    first_graph = part * graphs_per_part
    result = worker_tab.run(
        f"await tab_functions.random_graphs({first_graph}, {graphs_per_part})"
    )
    assert result["wrong"] == []
    assert result["nodes"] > 5 * graphs_per_part


@pytest.mark.full
def test_gradients_of_random_graphs_are_right(worker_tab: Tab) -> None:
    result = worker_tab.run("await tab_functions.random_gradients(0, 24)")
    assert result["wrong"] == []
    assert result["judged"] > 1000


def test_welch_peaks_find_the_rhythms(tab: Tab) -> None:
    """The GPU and NumPy find the same rhythms; the engine's name tells which ran."""
    results = tab.run(
        """
        import json
        import numpy as np, rlxweb as rlx
        await rlx.open_async("webgpu")
        t = np.arange(2048) / 256
        tones = [4.0, 10.0, 17.0, 40.0]
        x = np.stack([np.sin(2 * np.pi * f * t) for f in tones]).astype(np.float32)
        found = []
        for device in ("webgpu", "cpu"):
            p = await rlx.welch_peaks_async(x, 256, 256, 1, device=device)
            found.append([p.engine, p.hz[:, 0].tolist(), p.device.label])
        json.dumps(found)
        """
    )
    (gpu, hz, label), (cpu, hz_cpu, _) = results
    assert "swiftshader" in gpu.lower()
    assert label == "webgpu"
    assert cpu.startswith("NumPy")
    assert hz == hz_cpu == [4.0, 10.0, 17.0, 40.0]


def test_matmuls_and_regions_run_as_generated_webassembly(tab: Tab) -> None:
    """Matrix products and elementwise regions run as generated WebAssembly on the
    page's main thread as well.

    Browsers compile small modules only there. The module with additions that do not
    round, which node has not, is among them.
    """
    result = tab.run(
        """
        import json
        import numpy as np, rlxweb as rlx
        from rlxweb.codegen.native_elementwise import region_kernels
        from rlxweb.ops.matmul.cpu import wasm as wasm_matmul
        from rlxweb.codegen.wasm_builder import load_module
        from rlxweb.ops.matmul.cpu.wasm_codegen import matmul_module
        load_module(matmul_module(fused=True), "product")
        earlier_failures = list(region_kernels._failures.values())
        g = rlx.Graph("layer")
        x, w, b = g.input("x", (64, 96)), g.param("w", (96, 130)), g.param("b", (130,))
        g.set_outputs([g.gelu(x @ w + b)])
        layer = rlx.Session("cpu").compile(g)
        draw = np.random.default_rng(1).standard_normal
        w, b, x = (draw(s).astype(np.float32) for s in ((96, 130), (130,), (64, 96)))
        layer.set_param("w", w)
        layer.set_param("b", b)
        for _ in range(200):
            (y,) = layer.run({"x": x})
        json.dumps(
            {
                "product": wasm_matmul.wasm_functions() is not None,
                "regions": len(region_kernels._kernels),
                "failures": [
                    failure for failure in region_kernels._failures.values()
                    if failure not in earlier_failures
                ],
                "y": y.tolist(), "x": x.tolist(), "w": w.tolist(), "b": b.tolist(),
            }
        )
        """
    )
    assert result["product"]
    assert result["regions"] > 0
    assert result["failures"] == []
    x, w, b = (np.array(result[name]) for name in "xwb")
    z = x @ w + b
    expected = z * 0.5 * (1 + np.vectorize(math.erf)(z / np.sqrt(2)))
    np.testing.assert_allclose(result["y"], expected, 1e-4, 1e-5)


def test_state_stays_on_browser_gpu(tab: Tab) -> None:
    """A running average reads no byte back unasked, and nothing piles up on the GPU.

    Nor does a Welch job over an array that lies there: it keeps its shaders, 11 without
    workgroup memory, and the 19 buffers of its program, and the next one takes them.
    """
    read_nbytes, error, new_handles, handle_counts, is_same = tab.run(
        """
import gc, json
import numpy as np, rlxweb as rlx
from rlxweb.engines.pool import pool
g = rlx.Graph("average")
x, mean = g.input("x", (64, 8)), g.param("mean", (64, 8))
g.set_outputs([mean * 0.75 + x * 0.25])
rows = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
there = await rlx.put_async(rows, "webgpu")
compiled = await rlx.Session("webgpu").compile_async(g)
state = want = np.zeros((64, 8), np.float32)
await compiled.set_param_async("mean", state)
port, read = pool.engine("webgpu").port, []
inner = port.read
async def counted(handle, offset, nbytes):
    read.append(nbytes)
    return await inner(handle, offset, nbytes)
port.read = counted
for at in range(100):
    (state,) = await compiled.run_async({"x": there}, keep=True)
    await compiled.set_param_async("mean", state)
    want = want * np.float32(0.75) + rows * np.float32(0.25)
    live = len(port.live_handles) if at == 9 else live if at else 0
before = list(read)
off = float(abs(await state.numpy_async() - want).max())
gc.collect()
grown = len(port.live_handles) - live
del port.read
long = np.tile(rows, (1, 64))
lying = await rlx.put_async(long, "webgpu")
jobs = [len(port.live_handles)]
for _ in range(3):
    found = await rlx.welch_peaks_async(lying, nperseg=64, k=2)
    gc.collect()
    jobs.append(len(port.live_handles))
right = rlx.welch_peaks(long, nperseg=64, k=2, device="cpu")
same = bool((found.bins == right.bins).all())
json.dumps([sum(before), off, grown, jobs, same])
"""
    )
    assert read_nbytes == 0
    assert error < 1e-5
    assert new_handles <= 1
    before, first, *later = handle_counts
    assert first - before <= 30
    assert later == [first] * 2
    assert is_same


def test_a_run_is_profiled(tab: Tab) -> None:
    """The clock of the browser's GPU profiles many steps, and leaves nothing there."""
    result = tab.run(
        """
        import json
        import numpy as np, rlxweb as rlx
        from rlxweb.engines.pool import pool
        from tests.browser.inside.tab_functions import js_objects
        await rlx.open_async("webgpu")
        g = rlx.Graph("chain")
        x = g.input("x", (64, 64))
        y = x
        for _ in range(40):
            y = g.softmax(y @ x)
        g.set_outputs([y])
        one = await rlx.Session("webgpu").compile_async(g)
        feeds = {"x": np.eye(64, dtype=np.float32)}
        (want,) = await one.run_async(feeds)
        port = pool.engine("webgpu").port
        held = js_objects(port)
        made = await one.profile_async(feeds, repeats=2)
        json.dumps({
            "how": made.how,
            "right": bool((made.outputs[0] == want).all()),
            "steps": [[s.kind, s.ns] for s in made.steps],
            "left": js_objects(port) - held,
            "text": str(made),
        })
        """
    )
    assert result["how"] == "device clock"
    assert result["right"]
    assert [kind for kind, _ in result["steps"]] == ["matmul", "softmax"] * 40
    assert sum(ns for _, ns in result["steps"]) > 0
    assert result["left"] == 0
    assert "chain on" in result["text"]


def test_a_function_is_traced_and_runs_on_the_gpu(tab: Tab) -> None:
    """A traced function gives NumPy's numbers on the GPU, or the line that cannot."""
    result = tab.run(
        """
        @rlx.function(device="webgpu")
        def density(x, window):
            frames = np.lib.stride_tricks.sliding_window_view(x, 64, axis=-1)
            frames = frames[..., ::32, :]
            frames = (frames - frames.mean(-1, keepdims=True)) * window
            power = np.abs(np.fft.rfft(frames))
            return {"power": (power ** 2).mean(-2), "at": np.argmax(power, -1)}

        @rlx.function(device="webgpu")
        def asking(x):
            return x if x.sum() > 0 else -x

        x = np.random.default_rng(5).normal(size=(3, 512)).astype("f4")
        window = np.hanning(64).astype("f4")
        got = await density.run_async(x, window)
        want = density.__wrapped__(x, window)
        off = np.abs(got["power"] - want["power"]).max() / want["power"].max()
        try:
            said = str(await asking.run_async(x))
        except rlx.RlxError as error:
            said = str(error)
        same = bool((got["at"] == want["at"]).all()) and got["at"].dtype == np.int64
        json.dumps([float(off), same, said, str(got["power"].dtype)])
        """
    )
    assert result[0] < 1e-5
    assert result[1]
    assert "the truth value" in result[2]
    assert "in asking" in result[2]
    assert result[3] == "float32"


DRIFT_CODE = """
rng = np.random.default_rng(3)
drift = np.cumsum(np.cumsum(rng.standard_normal((4, 6144)), axis=1), axis=1)
drift = (drift - drift.mean(axis=1, keepdims=True)) / drift.std()
"""
"""Python code that makes rows whose spectrum falls as 1/f⁴, so that a transform can
skip most of their samples.
"""


def test_learned_transform_matches_desktop(tab: Tab) -> None:
    """One file of a learned transform computes the same on a tab's NumPy and GPU."""
    namespace: dict[str, Any] = {"np": np}
    exec(DRIFT_CODE, namespace)
    learned = learn_welch(
        namespace["drift"], 256.0, nperseg=128, fmax=24.0, k=3, max_error=0.05, steps=5
    )
    assert not learned.is_exact
    file = io.BytesIO()
    learned.save(file)
    options = {"nperseg": 128, "k": 3, "fmin": 2.0, "fmax": 22.0, "strategy": "learned"}
    expected = rlx.welch_peaks(
        namespace["drift"], 256.0, model=file.getvalue(), device="cpu", **options
    )
    results = tab.run(
        f"""
        import base64, json
        import numpy as np, rlxweb as rlx
        {textwrap.indent(DRIFT_CODE, " " * 8).strip()}
        model = base64.b64decode("{base64.b64encode(file.getvalue()).decode()}")
        await rlx.open_async("webgpu")
        found = []
        for device in ("cpu", "webgpu"):
            one = await rlx.welch_peaks_async(
                drift, 256.0, model=model, device=device, precision="f32", **{options!r}
            )
            found.append([one.engine, one.bins.tolist(), one.power.tolist()])
        json.dumps(found)
        """
    )
    for _, bins, power in results:
        assert bins == expected.bins.tolist()
        np.testing.assert_allclose(power, expected.power, rtol=1e-3)
    assert "swiftshader" in results[1][0].lower()
