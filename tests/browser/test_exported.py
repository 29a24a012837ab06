"""Exported plans in a browser, without Python, under a policy against `eval`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.signal
from playwright.sync_api import Browser, Page

import rlxweb as rlx
from rlxweb.backends.protocol import Array
from rlxweb.export.module import module_text, source
from tests.browser.exported_pages import (
    FS,
    KINDS,
    NPERSEG,
    POLICY,
    ROWS,
    SAMPLES,
    WEIGHTS,
    Exports,
    K,
    blank,
    exports,
    kinds_graph,
    layer_graph,
    page,
    watch,
    written,
)
from tests.browser.watch import Watch

__all__ = ["blank", "exports", "page", "watch", "written"]
pytestmark = pytest.mark.requires_browser

MOST_BYTES = 26 << 10
ARRAYS = {
    "Float32Array": np.float32,
    "Float64Array": np.float64,
    "Int32Array": np.int32,
    "Uint32Array": np.uint32,
    "Uint8Array": np.bool_,
}


def arrays(found: dict[str, list[Any]]) -> dict[str, Array]:
    """What `plain` of the harness made of results."""
    return {name: np.array(rest, ARRAYS[of]) for name, (of, *rest) in found.items()}


def typed(x: Array) -> str:
    """The array in JavaScript. Bits, since JSON has neither NaN nor infinity."""
    kind = {np.bool_: "Uint8Array"} | {v: k for k, v in ARRAYS.items() if v != np.bool_}
    of = kind[x.dtype.type]
    return f"new {of}(new Uint8Array({list(x.tobytes())}).buffer)"


def feeds(**given: Array) -> str:
    return "{" + ", ".join(f"{n}: {typed(a)}" for n, a in given.items()) + "}"


def rows(loudest: float = 6e17) -> Array:
    """Tones in noise: one row so loud that sums of its power leave float32, one soft,
    one of zeros.
    """
    t = np.arange(SAMPLES) / FS
    rng = np.random.default_rng(7)
    tones = [10.3, 25.0, 40.1, 5.5, 17.2]
    x = np.stack([np.sin(2 * np.pi * f * t) for f in tones])
    x += 0.2 * rng.standard_normal((ROWS, SAMPLES))
    return (x * np.array([1, loudest, 1e-17, 0, 3])[:, None]).astype(np.float32)


# --- numbers ----------------------------------------------------------------------


def check_peaks(found: dict[str, Array], x: Array) -> None:
    """Check peaks against Python's on the CPU, and SciPy's spectrum in float64."""
    want = rlx.welch_peaks(x, FS, NPERSEG, K, device="cpu")
    assert found["bins"].reshape(ROWS, K).tolist() == want.bins.tolist()
    assert found["count"].tolist() == want.count.tolist()
    np.testing.assert_array_equal(found["hz"].reshape(ROWS, K), want.hz)
    power = found["power"].reshape(ROWS, K)
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
            near = spectrum[row, bin_] * factor
            assert power[row, j] == pytest.approx(near, rel=1e-4)


def test_peaks_are_those_of_python_and_of_scipy(page: Page) -> None:
    """Rows whose squares leave float32 and a row of zeros among them."""
    x = rows()
    said = page.evaluate(
        f"""async () => {{
        const run = await load("/peaks/plan.json");
        const found = plain(await run({feeds(x=x)}));
        const {{ inputs, outputs, adapter, times }} = run;
        run.close();
        const shapes = {{ x: inputs.x.shape, hz: outputs.hz.shape }};
        return {{ found, shapes, adapter, times }};
        }}"""
    )
    check_peaks(arrays(said["found"]), x)
    assert said["shapes"] == {"x": [ROWS, SAMPLES], "hz": [ROWS, K]}
    assert said["adapter"]["software"] is True
    assert "swiftshader" in said["adapter"]["architecture"]
    assert set(said["times"]) == {"adapter", "plan", "device", "pipelines", "ready"}


def test_a_worker_gives_the_same(page: Page) -> None:
    """A Worker, which has no document and its own file's policy, gives the same."""
    x = rows()
    said = page.evaluate(
        f"""() => new Promise((done, failed) => {{
        const worker = new Worker("/worker.js", {{ type: "module" }});
        worker.onerror = (event) => failed(new Error(event.message));
        worker.onmessage = ({{ data }}) =>
            done({{ ...data, found: plain(data.found) }});
        worker.postMessage({{ url: "/peaks/plan.json", inputs: {feeds(x=x)} }});
        }})"""
    )
    assert (said["page"], said["ok"]) == ("undefined", True)
    check_peaks(arrays(said["found"]), x)


def test_spectra_come_with_peaks(page: Page) -> None:
    """A plan of "both" gives the whole power and its frequencies beside the peaks."""
    x = rows()
    said = page.evaluate(
        f"""async () => {{
        const run = await load("/both/plan.json");
        return plain(await run({feeds(x=x)}));
        }}"""
    )
    found = arrays(said)
    check_peaks(found, x)
    hz, power = rlx.welch(x, FS, nperseg=NPERSEG, preset="rlx", device="cpu")
    np.testing.assert_array_equal(found["freqs"], hz)
    spectrum = found["spectrum"].reshape(power.shape)
    off = np.abs(spectrum - power).max(axis=1)
    assert (off <= 1e-5 * power.max(axis=1)).all()


def test_every_type_crosses(page: Page) -> None:
    """Floats, integers, bools; no elements; a single value."""
    x = np.array([[1.5, -2, 0], [-0.0, 7, -3]], np.float32)
    given = {
        "x": x,
        "n": np.array([-(2**30), 5, -1], np.int32),
        "u": np.array([65_537, 3, 0], np.uint32),
        "b": np.array([[1, 0, 1], [0, 1, 0]], np.bool_),
    }
    said = page.evaluate(
        f"""async () => {{
        const run = await load("/kinds/plan.json");
        return plain(await run({feeds(**given)}));
        }}"""
    )
    found = arrays(said)
    want = rlx.Session("cpu").compile(kinds_graph()).run(given)
    assert tuple(found) == KINDS
    for name, wanted in zip(KINDS, want, strict=True):
        assert found[name].dtype == wanted.dtype, name
        np.testing.assert_array_equal(found[name], wanted.reshape(-1), err_msg=name)


def test_weights_are_those_of_the_export(page: Page) -> None:
    """A product with the weights of the export is NumPy's."""
    x = np.random.default_rng(3).standard_normal((4, 48)).astype(np.float32)
    said = page.evaluate(
        f"""async () => {{
        const run = await load("/layer/plan.json");
        return plain(await run({feeds(x=x)}));
        }}"""
    )
    found = arrays(said)
    want = np.tanh(x.astype(np.float64) @ WEIGHTS["w"].astype(np.float64))
    np.testing.assert_allclose(found["y"].reshape(4, 40), want, atol=1e-5)
    assert layer_graph().name == "layer"


def test_software_and_gpus_have_plans_of_their_own(
    exports: Exports, browser: Browser, watch: Watch
) -> None:
    """The browser's GPU here is software; where it says another name, the other plan
    gives the same peaks.
    """
    as_hardware = """
    if (globalThis.GPUAdapter) Object.defineProperty(GPUAdapter.prototype, "info", {
      value: { vendor: "acme", architecture: "gen-9", isFallbackAdapter: false } });
    """
    x = rows()
    ask = f"""async () => {{
        const run = await load("/peaks/plan.json");
        const found = plain(await run({feeds(x=x)}));
        const checked = await run.check();
        return {{ found, checked, adapter: run.adapter, commands: run.plan.buffers }};
        }}"""
    soft = exports.page(browser, watch).evaluate(ask)
    hard = exports.page(browser, watch, as_hardware).evaluate(ask)
    assert (soft["adapter"]["software"], hard["adapter"]["software"]) == (True, False)
    assert hard["adapter"]["vendor"] == "acme"
    assert soft["commands"] != hard["commands"]
    for said in (soft, hard):
        assert said["checked"]["ok"], said["checked"]
        check_peaks(arrays(said["found"]), x)


# --- the module -------------------------------------------------------------------


def test_the_module_is_small_and_evaluates_nothing() -> None:
    """The module is small, comments and all, imports nothing and makes no code."""
    text = module_text()
    assert len(text.encode()) <= MOST_BYTES
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
        re.findall(r"^export (?:function|class) (\w+)", source("runtime.d.ts"), re.M)
    )
    exported = re.findall(r"^export (?:async )?(?:function|class) (\w+)", text, re.M)
    assert declared == set(exported) == {"load", "RlxError"}


def test_types_know_every_code_and_fact(page: Page) -> None:
    """The module's types name all that a run has and every code of an error."""
    types = source("runtime.d.ts")
    codes = set(re.findall(r'new RlxError\("([\w-]+)"', module_text()))
    codes |= set(re.findall(r'refused\("([\w-]+)"', module_text()))
    codes |= set(re.findall(r'^  \["[\w-]+", "([\w-]+)"', module_text(), re.M))
    told = types[types.index("export type Code") : types.index("export class")]
    assert codes == set(re.findall(r'"([\w-]+)"', told))
    has = page.evaluate("""async () => Object.keys(await load("/kinds/plan.json"))""")
    body = types[types.index("export interface Run {") :]
    known = re.findall(
        r"^  (?:readonly )?(\w+)(?=[:(])", body[: body.index("\n}")], re.M
    )
    assert set(has) == set(known)


def test_its_page_checks_itself_under_the_policy(
    exports: Exports, browser: Browser, watch: Watch
) -> None:
    """The exported page finds itself right under a real policy, without complaints.

    The policy refuses `eval`.
    """
    blank = exports.page(browser, watch)
    assert blank.evaluate("evaluated") == "EvalError"
    blank.context.close()
    page = watch.page(browser, "peaks/")
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


def test_its_page_shows_what_is_wrong(
    exports: Exports, browser: Browser, watch: Watch
) -> None:
    """Weights that are others than those of the vectors."""
    own, other = WEIGHTS["w"].tobytes(), (0.5 * WEIGHTS["w"]).tobytes()
    weights = (exports.folder / "layer" / "weights.bin").read_bytes()
    assert weights.count(own) == 1  # shared by both plans
    exports.faults["/layer/weights.bin"] = weights.replace(own, other)
    page = watch.page(browser, "layer/")
    page.wait_for_selector("html[data-state=wrong]")
    assert page.is_visible("#rows")
    assert not page.is_visible("#stuck")
    assert page.inner_text("#sentence").startswith("Wrong: ")
    assert "% of what is tolerated" in page.inner_text("#aside")
    exports.faults["/layer/weights.bin"] = "html"
    page.reload()
    page.wait_for_selector("html[data-state=failed]")
    assert page.inner_text("#sentence") == "It did not run (fetch)"
    assert page.inner_text("#aside").endswith("the file is not there.")
    assert page.locator("section").count() == 3  # of them that on top alone is shown
    assert page.locator("section:visible").count() == 1
    exports.faults.clear()
    page.click("#again")
    page.wait_for_selector("html[data-state=right]")
    page.context.close()


def test_its_page_opened_as_a_file_says_why_nothing_begins(
    exports: Exports, browser: Browser
) -> None:
    """An exported page says why no browser runs it as a file."""
    page = browser.new_page()
    page.goto((exports.folder / "peaks" / "index.html").as_uri())
    page.wait_for_selector("#stuck")
    assert "python -m http.server" in page.inner_text("#stuck")
    page.close()


def test_its_page_fits_a_phone(browser: Browser, watch: Watch) -> None:
    """An exported page does not scroll sideways on a phone."""
    page = watch.page(browser, "peaks/", viewport={"width": 360, "height": 800})
    page.wait_for_selector("html[data-state=right]")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.context.close()
