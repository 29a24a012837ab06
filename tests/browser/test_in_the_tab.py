"""The same wheel in a tab: graphs and Welch peaks against NumPy in float64.

Samples of every op are checked in test_check.py, through the page for visitors.
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
from tests.tiers import thinned

pytestmark = pytest.mark.requires_browser

GRAPHS = 96
PARTS = 8


def test_nothing_but_numpy_is_loaded(tab: Tab) -> None:
    """A tab loads nothing but NumPy, neither at import nor by a run."""
    found = tab.run(
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
    assert found == []


def test_what_is_imported_was_compiled_before(tab: Tab) -> None:
    """The bytecode of the site is where Python looks for it, and misses nothing."""
    found = tab.run(
        """
        import json, os, sys
        import numpy as np, rlxweb as rlx
        rlx.welch_peaks(np.ones((2, 512), np.float32), device="cpu", k=2)
        specs = [m.__spec__ for n, m in sys.modules.items() if n.startswith("rlxweb")]
        missing = [s.name for s in specs if not os.path.exists(s.cached)]
        json.dumps([len(specs), missing])
        """
    )
    assert found[0] > 100
    assert found[1] == []


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


def test_special_values_are_numpys_on_the_gpu_of_the_tab(worker_tab: Tab) -> None:
    """NaN, infinity, the largest numbers, and sums that could be simplified."""
    found = worker_tab.run("await suite.special_values()")
    assert found["wrong"] == []
    assert found["cases"] > 70


@pytest.mark.parametrize("part", thinned(range(PARTS), PARTS))
def test_random_graphs_are_right(worker_tab: Tab, part: int) -> None:
    """96 of them in all, at the adapter's limits and at tiny ones."""
    each = GRAPHS // PARTS
    found = worker_tab.run(f"await suite.random_graphs({part * each}, {each})")
    assert found["wrong"] == []
    assert found["nodes"] > 5 * each


@pytest.mark.full
def test_gradients_of_random_graphs_are_right(worker_tab: Tab) -> None:
    found = worker_tab.run("await suite.random_gradients(0, 24)")
    assert found["wrong"] == []
    assert found["judged"] > 1000


def test_welch_peaks_find_the_rhythms(tab: Tab) -> None:
    """The GPU and NumPy find the same rhythms; the engine's name tells which ran."""
    found = tab.run(
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
    (gpu, hz, label), (cpu, hz_cpu, _) = found
    assert "swiftshader" in gpu.lower()
    assert label == "webgpu"
    assert cpu.startswith("NumPy")
    assert hz == hz_cpu == [4.0, 10.0, 17.0, 40.0]


def test_products_and_regions_are_webassembly_of_our_own(tab: Tab) -> None:
    """Products and regions are our own WebAssembly on the page's thread as well.

    Browsers compile small modules only there. The module with additions that do not
    round, which node has not, is among them.
    """
    found = tab.run(
        """
        import json
        import numpy as np, rlxweb as rlx
        from rlxweb.backends.cpu_regions import region_kernels
        from rlxweb.host import wasm_products
        from rlxweb.machine.wasm import opened
        from rlxweb.machine.wasm_products import products_module
        opened(products_module(fused=True), "product")
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
                "product": wasm_products.functions() is not None,
                "regions": len(region_kernels._made),
                "refused": list(region_kernels._refused.values()),
                "y": y.tolist(), "x": x.tolist(), "w": w.tolist(), "b": b.tolist(),
            }
        )
        """
    )
    assert found["product"]
    assert found["regions"] > 0
    assert found["refused"] == []
    x, w, b = (np.array(found[name]) for name in "xwb")
    z = x @ w + b
    right = z * 0.5 * (1 + np.vectorize(math.erf)(z / np.sqrt(2)))
    np.testing.assert_allclose(found["y"], right, 1e-4, 1e-5)


def test_state_stays_on_the_gpu_of_the_tab(tab: Tab) -> None:
    """A running average: not a byte comes back unasked, and nothing piles up.

    Nor does a Welch job over an array that lies there: it keeps its shaders, 11 without
    workgroup memory, and the 19 buffers of its program, and the next one takes them.
    """
    read, off, grown, jobs, peaks = tab.run(
        """
import gc, json
import numpy as np, rlxweb as rlx
from rlxweb.backends.pool import pool
g = rlx.Graph("average")
x, mean = g.input("x", (64, 8)), g.param("mean", (64, 8))
g.set_outputs([mean * 0.75 + x * 0.25])
rows = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
there = await rlx.put_async(rows, "webgpu")
compiled = await rlx.Session("webgpu").compile_async(g)
state = want = np.zeros((64, 8), np.float32)
await compiled.set_param_async("mean", state)
port, read = pool.backend("webgpu").port, []
inner = port.read
async def counted(handle, offset, nbytes):
    read.append(nbytes)
    return await inner(handle, offset, nbytes)
port.read = counted
for at in range(100):
    (state,) = await compiled.run_async({"x": there}, keep=True)
    await compiled.set_param_async("mean", state)
    want = want * np.float32(0.75) + rows * np.float32(0.25)
    live = len(port.live) if at == 9 else live if at else 0
before = list(read)
off = float(abs(await state.numpy_async() - want).max())
gc.collect()
grown = len(port.live) - live
del port.read
long = np.tile(rows, (1, 64))
lying = await rlx.put_async(long, "webgpu")
jobs = [len(port.live)]
for _ in range(3):
    found = await rlx.welch_peaks_async(lying, nperseg=64, k=2)
    gc.collect()
    jobs.append(len(port.live))
right = rlx.welch_peaks(long, nperseg=64, k=2, device="cpu")
same = bool((found.bins == right.bins).all())
json.dumps([sum(before), off, grown, jobs, same])
"""
    )
    assert read == 0
    assert off < 1e-5
    assert grown <= 1
    before, first, *later = jobs
    assert first - before <= 30
    assert later == [first] * 2
    assert peaks


def test_a_run_is_profiled(tab: Tab) -> None:
    """The clock of the browser's GPU profiles many steps, and leaves nothing there."""
    found = tab.run(
        """
        import json
        import numpy as np, rlxweb as rlx
        from rlxweb.backends.pool import pool
        from tests.browser.inside.suite import js_objects
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
        port = pool.backend("webgpu").port
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
    assert found["how"] == "device clock"
    assert found["right"]
    assert [kind for kind, _ in found["steps"]] == ["matmul", "softmax"] * 40
    assert sum(ns for _, ns in found["steps"]) > 0
    assert found["left"] == 0
    assert "chain on" in found["text"]


def test_a_function_is_traced_and_runs_on_the_gpu(tab: Tab) -> None:
    """A traced function gives NumPy's numbers on the GPU, or the line that cannot."""
    found = tab.run(
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
    assert found[0] < 1e-5
    assert found[1]
    assert "the truth value" in found[2]
    assert "in asking" in found[2]
    assert found[3] == "float32"


DRIFT = """
rng = np.random.default_rng(3)
drift = np.cumsum(np.cumsum(rng.standard_normal((4, 6144)), axis=1), axis=1)
drift = (drift - drift.mean(axis=1, keepdims=True)) / drift.std()
"""
"""Rows that fall as 1/f⁴: what a transform can leave most of its samples out of."""


def test_a_learned_transform_computes_what_it_does_on_the_desktop(tab: Tab) -> None:
    """One file of a learned transform computes the same on a tab's NumPy and GPU."""
    here: dict[str, Any] = {"np": np}
    exec(DRIFT, here)
    learned = learn_welch(
        here["drift"], 256.0, nperseg=128, fmax=24.0, k=3, max_error=0.05, steps=5
    )
    assert not learned.is_exact
    file = io.BytesIO()
    learned.save(file)
    asked = {"nperseg": 128, "k": 3, "fmin": 2.0, "fmax": 22.0, "strategy": "learned"}
    right = rlx.welch_peaks(
        here["drift"], 256.0, model=file.getvalue(), device="cpu", **asked
    )
    found = tab.run(
        f"""
        import base64, json
        import numpy as np, rlxweb as rlx
        {textwrap.indent(DRIFT, " " * 8).strip()}
        model = base64.b64decode("{base64.b64encode(file.getvalue()).decode()}")
        await rlx.open_async("webgpu")
        found = []
        for device in ("cpu", "webgpu"):
            one = await rlx.welch_peaks_async(
                drift, 256.0, model=model, device=device, precision="f32", **{asked!r}
            )
            found.append([one.engine, one.bins.tolist(), one.power.tolist()])
        json.dumps(found)
        """
    )
    for _, bins, power in found:
        assert bins == right.bins.tolist()
        np.testing.assert_allclose(power, right.power, rtol=1e-3)
    assert "swiftshader" in found[1][0].lower()
