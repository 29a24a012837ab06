"""Check exported plans in a browser, without Python, under a policy against `eval`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.signal
from playwright.sync_api import Browser, Page

import rlxweb as rlx
from rlxweb.engines.protocol import Array
from rlxweb.export.js_runtime_files import read_source, runtime_source
from tests.browser.exported_plan_server import (
    FS,
    KINDS,
    NPERSEG,
    POLICY,
    ROWS,
    SAMPLES,
    WEIGHTS,
    ExportServer,
    K,
    blank,
    exports,
    kinds_graph,
    layer_graph,
    page,
    watch,
    written,
)
from tests.browser.page_monitor import PageMonitor

__all__ = ["blank", "exports", "page", "watch", "written"]
pytestmark = pytest.mark.requires_browser

MAX_MODULE_BYTES = 26 << 10
TYPED_ARRAYS = {
    "Float32Array": np.float32,
    "Float64Array": np.float64,
    "Int32Array": np.int32,
    "Uint32Array": np.uint32,
    "Uint8Array": np.bool_,
}


def decode_arrays(encoded: dict[str, list[Any]]) -> dict[str, Array]:
    """Decode results that `plain` of the harness encoded."""
    return {
        name: np.array(values, TYPED_ARRAYS[array_type])
        for name, (array_type, *values) in encoded.items()
    }


def typed_array_source(x: Array) -> str:
    """Return JavaScript source of the array, as bytes, since JSON has neither NaN nor
    infinity.
    """
    types_by_dtype = {np.bool_: "Uint8Array"} | {
        v: k for k, v in TYPED_ARRAYS.items() if v != np.bool_
    }
    array_type = types_by_dtype[x.dtype.type]
    return f"new {array_type}(new Uint8Array({list(x.tobytes())}).buffer)"


def inputs_source(**inputs: Array) -> str:
    return (
        "{"
        + ", ".join(f"{n}: {typed_array_source(a)}" for n, a in inputs.items())
        + "}"
    )


def tone_rows(loudest: float = 6e17) -> Array:
    """Return tones in noise: one row so loud that its power sums overflow float32, one
    soft, one of zeros.
    """
    t = np.arange(SAMPLES) / FS
    rng = np.random.default_rng(7)
    tones = [10.3, 25.0, 40.1, 5.5, 17.2]
    x = np.stack([np.sin(2 * np.pi * f * t) for f in tones])
    x += 0.2 * rng.standard_normal((ROWS, SAMPLES))
    return (x * np.array([1, loudest, 1e-17, 0, 3])[:, None]).astype(np.float32)


# --- numbers ----------------------------------------------------------------------


def check_peaks(outputs: dict[str, Array], x: Array) -> None:
    """Check peaks against Python's on the CPU, and SciPy's spectrum in float64."""
    want = rlx.welch_peaks(x, FS, NPERSEG, K, device="cpu")
    assert outputs["bins"].reshape(ROWS, K).tolist() == want.bins.tolist()
    assert outputs["count"].tolist() == want.count.tolist()
    np.testing.assert_array_equal(outputs["hz"].reshape(ROWS, K), want.hz)
    power = outputs["power"].reshape(ROWS, K)
    np.testing.assert_allclose(power, want.power, rtol=2e-5, equal_nan=True)
    _, spectrum = scipy.signal.welch(
        x.astype(np.float64),
        window=np.hanning(NPERSEG),
        nperseg=NPERSEG,
        detrend=False,
        scaling="spectrum",
    )
    spectrum *= np.hanning(NPERSEG).sum() ** 2
    spectrum[:, 1:-1] /= 2  # |X|², both sides apart
    for row in range(ROWS):
        for j in range(int(want.count[row])):
            bin_ = int(want.bins[row, j])
            factor = 1 if bin_ in (0, NPERSEG // 2) else 2
            expected = spectrum[row, bin_] * factor
            assert power[row, j] == pytest.approx(expected, rel=1e-4)


def test_peaks_are_those_of_python_and_of_scipy(page: Page) -> None:
    """Peaks agree, also for rows whose squares overflow float32 and for a row of
    zeros.
    """
    x = tone_rows()
    result = page.evaluate(
        f"""async () => {{
        const run = await load("/peaks/plan.json");
        const found = plain(await run({inputs_source(x=x)}));
        const {{ inputs, outputs, adapter, times }} = run;
        run.close();
        const shapes = {{ x: inputs.x.shape, hz: outputs.hz.shape }};
        return {{ found, shapes, adapter, times }};
        }}"""
    )
    check_peaks(decode_arrays(result["found"]), x)
    assert result["shapes"] == {"x": [ROWS, SAMPLES], "hz": [ROWS, K]}
    assert result["adapter"]["software"] is True
    assert "swiftshader" in result["adapter"]["architecture"]
    assert set(result["times"]) == {"adapter", "plan", "device", "pipelines", "ready"}


def test_a_worker_gives_the_same(page: Page) -> None:
    """A Worker, which has no document and its own file's policy, gives the same."""
    x = tone_rows()
    result = page.evaluate(
        f"""() => new Promise((done, failed) => {{
        const worker = new Worker("/worker.js", {{ type: "module" }});
        worker.onerror = (event) => failed(new Error(event.message));
        worker.onmessage = ({{ data }}) =>
            done({{ ...data, found: plain(data.found) }});
        worker.postMessage({{ url: "/peaks/plan.json", inputs: {inputs_source(x=x)} }});
        }})"""
    )
    assert (result["page"], result["ok"]) == ("undefined", True)
    check_peaks(decode_arrays(result["found"]), x)


def test_spectra_come_with_peaks(page: Page) -> None:
    """A plan of "both" returns the full power and its frequencies together with the
    peaks.
    """
    x = tone_rows()
    result = page.evaluate(
        f"""async () => {{
        const run = await load("/both/plan.json");
        return plain(await run({inputs_source(x=x)}));
        }}"""
    )
    outputs = decode_arrays(result)
    check_peaks(outputs, x)
    hz, power = rlx.welch(x, FS, nperseg=NPERSEG, preset="rlx", device="cpu")
    np.testing.assert_array_equal(outputs["freqs"], hz)
    spectrum = outputs["spectrum"].reshape(power.shape)
    error = np.abs(spectrum - power).max(axis=1)
    assert (error <= 1e-5 * power.max(axis=1)).all()


def test_every_dtype_survives_the_round_trip(page: Page) -> None:
    """Floats, integers, bools, an empty array and a scalar survive the round trip."""
    x = np.array([[1.5, -2, 0], [-0.0, 7, -3]], np.float32)
    inputs = {
        "x": x,
        "n": np.array([-(2**30), 5, -1], np.int32),
        "u": np.array([65_537, 3, 0], np.uint32),
        "b": np.array([[1, 0, 1], [0, 1, 0]], np.bool_),
    }
    result = page.evaluate(
        f"""async () => {{
        const run = await load("/kinds/plan.json");
        return plain(await run({inputs_source(**inputs)}));
        }}"""
    )
    outputs = decode_arrays(result)
    want = rlx.Session("cpu").compile(kinds_graph()).run(inputs)
    assert tuple(outputs) == KINDS
    for name, expected in zip(KINDS, want, strict=True):
        assert outputs[name].dtype == expected.dtype, name
        np.testing.assert_array_equal(outputs[name], expected.reshape(-1), err_msg=name)


def test_weights_are_those_of_the_export(page: Page) -> None:
    """A product with the weights of the export is NumPy's."""
    x = np.random.default_rng(3).standard_normal((4, 48)).astype(np.float32)
    result = page.evaluate(
        f"""async () => {{
        const run = await load("/layer/plan.json");
        return plain(await run({inputs_source(x=x)}));
        }}"""
    )
    outputs = decode_arrays(result)
    want = np.tanh(x.astype(np.float64) @ WEIGHTS["w"].astype(np.float64))
    np.testing.assert_allclose(outputs["y"].reshape(4, 40), want, atol=1e-5)
    assert layer_graph().name == "layer"


def test_software_and_hardware_gpus_have_separate_plans(
    exports: ExportServer, browser: Browser, watch: PageMonitor
) -> None:
    """The browser's GPU is software; if it reports another name, the other plan gives
    the same peaks.
    """
    as_hardware = """
    if (globalThis.GPUAdapter) Object.defineProperty(GPUAdapter.prototype, "info", {
      value: { vendor: "acme", architecture: "gen-9", isFallbackAdapter: false } });
    """
    x = tone_rows()
    script = f"""async () => {{
        const run = await load("/peaks/plan.json");
        const found = plain(await run({inputs_source(x=x)}));
        const checked = await run.check();
        return {{ found, checked, adapter: run.adapter, commands: run.plan.buffers }};
        }}"""
    software = exports.open_page(browser, watch).evaluate(script)
    hardware = exports.open_page(browser, watch, as_hardware).evaluate(script)
    assert (software["adapter"]["software"], hardware["adapter"]["software"]) == (
        True,
        False,
    )
    assert hardware["adapter"]["vendor"] == "acme"
    assert software["commands"] != hardware["commands"]
    for result in (software, hardware):
        assert result["checked"]["ok"], result["checked"]
        check_peaks(decode_arrays(result["found"]), x)


# --- the module -------------------------------------------------------------------


def test_the_module_is_small_and_evaluates_nothing() -> None:
    """The module is small including comments, imports nothing and creates no code."""
    text = runtime_source()
    assert len(text.encode()) <= MAX_MODULE_BYTES
    for never in (
        "eval(",
        "new Function",
        "import(",
        "importScripts",
        "createObjectURL",
    ):
        assert never not in text
    assert not re.search(r"^\s*import\b", text, re.MULTILINE)
    declared = set(
        re.findall(
            r"^export (?:function|class) (\w+)", read_source("runtime.d.ts"), re.M
        )
    )
    exported = re.findall(r"^export (?:async )?(?:function|class) (\w+)", text, re.M)
    assert declared == set(exported) == {"load", "RlxError"}


def test_type_declarations_list_every_error_code_and_property(page: Page) -> None:
    """The type declarations list all properties of a run and every error code."""
    types = read_source("runtime.d.ts")
    codes = set(re.findall(r'new RlxError\("([\w-]+)"', runtime_source()))
    codes |= set(re.findall(r'refused\("([\w-]+)"', runtime_source()))
    codes |= set(re.findall(r'^  \["[\w-]+", "([\w-]+)"', runtime_source(), re.M))
    code_type = types[types.index("export type Code") : types.index("export class")]
    assert codes == set(re.findall(r'"([\w-]+)"', code_type))
    properties = page.evaluate(
        """async () => Object.keys(await load("/kinds/plan.json"))"""
    )
    body = types[types.index("export interface Run {") :]
    declared = re.findall(
        r"^  (?:readonly )?(\w+)(?=[:(])", body[: body.index("\n}")], re.M
    )
    assert set(properties) == set(declared)


def test_exported_page_checks_itself_under_the_policy(
    exports: ExportServer, browser: Browser, watch: PageMonitor
) -> None:
    """The exported page passes its own check under a real policy, without complaints.

    The policy refuses `eval`.
    """
    blank = exports.open_page(browser, watch)
    assert blank.evaluate("evaluated") == "EvalError"
    blank.context.close()
    page = watch.open_page(browser, "peaks/")
    page.wait_for_selector("html[data-state=right]")
    assert re.fullmatch(
        r"Right: [\d,]+ values of \d+ test vectors?", page.inner_text("#sentence")
    )
    assert "swiftshader" in page.inner_text("#facts")
    assert "after navigation" in page.inner_text("#facts")
    page.click("#run")
    page.wait_for_selector("#timing:not(:empty)")
    answer = page.request.get(exports.url + "peaks/")
    assert answer.headers["content-security-policy"] == POLICY
    page.context.close()


def test_exported_page_shows_wrong_results(
    exports: ExportServer, browser: Browser, watch: PageMonitor
) -> None:
    """The page reports weights that differ from those of the test vectors."""
    right_bytes, wrong_bytes = WEIGHTS["w"].tobytes(), (0.5 * WEIGHTS["w"]).tobytes()
    weights = (exports.folder / "layer" / "weights.bin").read_bytes()
    assert weights.count(right_bytes) == 1  # shared by both plans
    exports.faults["/layer/weights.bin"] = weights.replace(right_bytes, wrong_bytes)
    page = watch.open_page(browser, "layer/")
    page.wait_for_selector("html[data-state=wrong]")
    assert page.is_visible("#rows")
    assert not page.is_visible("#stuck")
    assert page.inner_text("#sentence").startswith("Wrong: ")
    assert "% of the tolerance" in page.inner_text("#aside")
    exports.faults["/layer/weights.bin"] = "html"
    page.reload()
    page.wait_for_selector("html[data-state=failed]")
    assert page.inner_text("#sentence") == "The plan did not run (fetch)"
    assert page.inner_text("#aside").endswith("the file does not exist.")
    assert page.locator("section").count() == 3  # of them that on top alone is shown
    assert page.locator("section:visible").count() == 1
    exports.faults.clear()
    page.click("#again")
    page.wait_for_selector("html[data-state=right]")
    page.context.close()


def test_exported_page_opened_as_a_file_explains_the_failure(
    exports: ExportServer, browser: Browser
) -> None:
    """An exported page explains that browsers do not run it as a file."""
    page = browser.new_page()
    page.goto((exports.folder / "peaks" / "index.html").as_uri())
    page.wait_for_selector("#stuck")
    assert "python -m http.server" in page.inner_text("#stuck")
    page.close()


def test_exported_page_fits_a_phone(browser: Browser, watch: PageMonitor) -> None:
    """An exported page does not scroll sideways on a phone."""
    page = watch.open_page(browser, "peaks/", viewport={"width": 360, "height": 800})
    page.wait_for_selector("html[data-state=right]")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.context.close()
