"""Check errors of an exported plan in a browser: broken files, unsuitable browsers,
lost devices.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.exported_plan_server import (
    ExportServer,
    blank,
    check_error,
    exports,
    page,
    watch,
    written,
)
from tests.browser.page_monitor import PageMonitor

__all__ = ["blank", "exports", "page", "watch", "written"]
pytestmark = pytest.mark.requires_browser

LOAD_SCRIPT = 'told(() => load("/layer/plan.json"))'
CHECK_SCRIPT = "async () => (await (await load('/layer/plan.json')).check()).ok"
ONES_INPUT = "{ x: new Float32Array(192).fill(1) }"


def ignore_complaints(watch: PageMonitor, *allowed: str) -> None:
    """Drop the browser's own messages about a broken file from the complaints."""
    watch.problems = [
        line for line in watch.problems if not any(word in line for word in allowed)
    ]


# --- files ------------------------------------------------------------------------

SHADER = "/layer/shaders/00-matmul_tanh.wgsl"


@pytest.mark.parametrize("fault", [404, 500, "html", "cut"])
def test_a_broken_file_is_named_with_the_response(
    exports: ExportServer, page: Page, watch: PageMonitor, fault: Any
) -> None:
    """A broken file is named by its address; a cut one also with both byte counts."""
    for path in ("plan.json", "shaders/00-matmul_tanh.wgsl", "weights.bin"):
        exports.faults[f"/layer/{path}"] = fault
        url = f"{exports.url}layer/{path} could not be loaded"
        size = (exports.folder / "layer" / path).stat().st_size
        words = {"html": "an HTML page", "cut": f" of {size:,} bytes arrived"}
        word = words.get(fault, f"the server answered {fault}")
        message = check_error(page, LOAD_SCRIPT, url, word, code="fetch")
        if fault == "cut":  # of what came before, a browser may hand over a part
            (received,) = re.findall(r"([\d,]+) of", message)
            assert int(received.replace(",", "")) <= size // 2
        exports.faults.clear()
    ignore_complaints(watch, "Failed to load resource")
    assert page.evaluate(CHECK_SCRIPT)


def test_files_of_wrong_size_or_another_export_are_refused(
    exports: ExportServer, page: Page
) -> None:
    """Truncated weights, another schema, invalid JSON and JSON that is no plan are
    refused.
    """
    weights = (exports.folder / "layer" / "weights.bin").read_bytes()
    exports.faults["/layer/weights.bin"] = weights[:-4]
    size = len(weights)
    words = f"{size - 4:,} of {size:,} bytes arrived", "another export"
    check_error(page, LOAD_SCRIPT, *words, code="fetch")
    exports.faults.clear()
    for body, words in {
        b'{"schema": "rlxweb.web/2"}': ("rlxweb.web/2", "rlxweb.web/1"),
        b"[1, 2": ("is not a valid plan",),
        b"null": ("schema none",),
        b'{"schema": "rlxweb.web/1"}': ("is not a complete plan", "export it again"),
    }.items():
        exports.faults["/layer/plan.json"] = body
        check_error(page, LOAD_SCRIPT, "layer/plan.json", *words, code="plan")
    check_error(page, 'told(() => load("http://[::"))', "http://[::", code="plan")


def test_an_incomplete_plan_is_refused_when_it_is_used(
    exports: ExportServer, page: Page
) -> None:
    """An incomplete plan is refused with a message of the module's own."""
    text = (exports.folder / "layer" / "plan.json").read_text("utf-8")
    complete_plan = json.loads(text) | {"software": None}
    case = complete_plan["vectors"]["cases"][0]
    readback = complete_plan["readback"] | {"fault": -1}
    for part in (
        {"outputs": None},
        {"readback": readback},
        {"vectors": complete_plan["vectors"] | {"cases": [case | {"inputs": {}}]}},
    ):
        exports.faults["/layer/plan.json"] = json.dumps(complete_plan | part).encode()
        script = """told(async () => (await load("/layer/plan.json")).check())"""
        check_error(
            page,
            script,
            "layer is not a complete plan",
            "export it again",
            code="plan",
        )


def test_an_unreachable_server_is_reported(page: Page, watch: PageMonitor) -> None:
    """Port 9 of this machine answers nobody; the policy lets no page ask it either."""
    script = 'told(() => load("http://127.0.0.1:9/plan.json"))'
    check_error(page, script, "http://127.0.0.1:9/plan.json", "no answer", code="fetch")
    ignore_complaints(watch, "Content Security Policy", "127.0.0.1:9")


@pytest.mark.parametrize("path", ["plan.json", "weights.bin"])
def test_loading_can_be_aborted(exports: ExportServer, page: Page, path: str) -> None:
    """Loading ends at once with the caller's reason, in half a file and before it."""
    exports.faults[f"/layer/{path}"] = "hang"
    result = page.evaluate(
        """async () => {
        const stop = new AbortController();
        const loading = told(() => load("/layer/plan.json", { signal: stop.signal }));
        setTimeout(() => stop.abort(new Error("enough")), 300);
        const { message, ours } = await loading;
        const { signal } = stop;
        const after = await told(() => load("/layer/plan.json", { signal }));
        const made = { ...buffers };
        return [message, ours, after.message, made.made === made.destroyed];
        }"""
    )
    assert result == ["enough", False, "enough", True]


def test_a_shader_that_does_not_compile_gives_file_line_and_reason(
    exports: ExportServer, page: Page, watch: PageMonitor
) -> None:
    """A shader that does not compile is reported in the browser's own words."""
    exports.faults[SHADER] = b"@compute @workgroup_size(1)\nfn main() { nonsense; }"
    words = "shaders/00-matmul_tanh.wgsl", "line 2:21", "expected '='"
    check_error(page, LOAD_SCRIPT, *words, code="shader")
    ignore_complaints(watch, "nonsense")
    exports.faults.clear()
    plan = (exports.folder / "layer" / "plan.json").read_text("utf-8")
    software = (exports.folder / "layer" / "software.json").read_text("utf-8")
    for name, text in (("plan", plan), ("software", software)):
        bad = re.sub(r'("c", \d+, 0, \d+, 0, )\d+', r"\g<1>1048576", text)
        assert bad != text
        exports.faults[f"/layer/{name}.json"] = bad.encode()
    run = f'told(async () => (await load("/layer/plan.json"))({ONES_INPUT}))'
    check_error(page, run, "layer could not run", "export it again", code="plan")


# --- browsers ---------------------------------------------------------------------


def open_restricted_page(
    exports: ExportServer, browser: Browser, watch: PageMonitor, init_script: str
) -> Page:
    """Open an empty page in a browser that lacks something."""
    return exports.open_page(
        browser, watch, f"if (globalThis.GPUAdapter) {{ {init_script} }}\n"
    )


@pytest.mark.parametrize(
    ("first", "code", "words"),
    [
        (
            'Object.defineProperty(navigator, "gpu", { value: undefined });',
            "no-webgpu",
            ("this browser has no WebGPU",),
        ),
        (
            'Object.defineProperty(navigator, "gpu", { value: undefined });'
            'Object.defineProperty(globalThis, "isSecureContext", { value: false });',
            "no-webgpu",
            ("https",),
        ),
        (
            "GPU.prototype.requestAdapter = async () => null;",
            "no-adapter",
            ("offers no GPU",),
        ),
        (
            "GPUAdapter.prototype.requestDevice = async () => "
            '{ throw new Error("too many devices"); };',
            "no-adapter",
            ("did not open its GPU", "too many devices"),
        ),
        (
            "const { get } = Object.getOwnPropertyDescriptor(GPUAdapter.prototype, "
            '"limits"); Object.defineProperty(GPUAdapter.prototype, "limits", { get() '
            "{ return new Proxy(get.call(this), { get: (of, name) => name === "
            '"maxBufferSize" ? 1024 : name === "maxStorageBuffersPerShaderStage" ? '
            'undefined : name === "minStorageBufferOffsetAlignment" ? 512 : of[name] '
            "}); } });",
            "limits",
            (
                "maxBufferSize: 7,680 needed, 1,024 here",
                "maxStorageBuffersPerShaderStage: 3 needed, unknown here",
                "minStorageBufferOffsetAlignment: 256 needed, 512 here",
            ),
        ),
    ],
    ids=["no-webgpu", "insecure", "no-adapter", "no-device", "limits"],
)
def test_an_unsuitable_browser_is_refused_with_the_reason(
    exports: ExportServer,
    browser: Browser,
    watch: PageMonitor,
    first: str,
    code: str,
    words: tuple[str, ...],
) -> None:
    """A browser that cannot run a plan gets a message with what is needed; no buffer is
    created.
    """
    page = open_restricted_page(exports, browser, watch, first)
    check_error(page, LOAD_SCRIPT, *words, code=code)
    assert page.evaluate("buffers.made") == 0
    page.context.close()


def test_a_missing_gpu_feature_is_named(exports: ExportServer, page: Page) -> None:
    """A missing feature is named as limits are."""
    for name in ("plan", "software"):
        text = (exports.folder / "layer" / f"{name}.json").read_text("utf-8")
        changed_text = text.replace('"features": []', '"features": ["no-such-thing"]')
        exports.faults[f"/layer/{name}.json"] = changed_text.encode()
    check_error(page, LOAD_SCRIPT, "the feature no-such-thing", code="limits")


# --- devices ----------------------------------------------------------------------


def test_a_lost_device_is_reported_and_the_plan_loads_again(page: Page) -> None:
    """Device loss is reported to current and later runs; the plan loads again.

    `lost` resolves, and `close` is no loss.
    """
    result = page.evaluate(
        f"""async () => {{
        const run = await load("/layer/plan.json");
        await run({ONES_INPUT});
        const waiting = [told(() => run({ONES_INPUT})), told(() => run({ONES_INPUT}))];
        devices[0].destroy();
        const during = await Promise.all(waiting);
        const lost = await run.lost;
        const after = await told(() => run({ONES_INPUT}));
        const checked = await told(() => run.check());
        run.close();
        const again = await load("/layer/plan.json");
        const {{ ok }} = await again.check();
        let isLost = false;
        again.lost.then(() => {{ isLost = true; }});
        const ending = told(() => again({ONES_INPUT}));
        again.close();
        const afterwards = await told(() => again({ONES_INPUT}));
        const closed = [(await ending).code, afterwards.code];
        await devices[1].lost;
        await new Promise((done) => setTimeout(done, 50));
        return {{ codes: [...during, after, checked].map((one) => one.code), ok, closed,
            lost: [lost.code, lost instanceof RlxError], isLost, buffers,
            message: after.message }};
        }}"""
    )
    assert set(result["codes"]) == {"device-lost"}
    assert result["lost"] == ["device-lost", True]
    assert "load layer again" in result["message"]
    assert result["ok"]
    assert result["closed"] == ["closed", "closed"]
    assert not result["isLost"]
    assert result["buffers"]["made"] == result["buffers"]["destroyed"]


def test_device_loss_while_loading_ends_the_load(page: Page) -> None:
    """Loading a plan ends when the device is lost while shaders are compiled."""
    check_error(
        page,
        """told(async () => {
        const { createComputePipelineAsync: inner } = GPUDevice.prototype;
        GPUDevice.prototype.createComputePipelineAsync = function (...given) {
            const made = inner.apply(this, given);
            this.destroy();
            return made;
        };
        try { await load("/layer/plan.json"); }
        finally { GPUDevice.prototype.createComputePipelineAsync = inner; }
        })""",
        code="device-lost",
    )
    assert page.evaluate(CHECK_SCRIPT)


def test_an_adapter_in_place_of_a_device_is_refused(page: Page) -> None:
    """An adapter is refused where a device is asked for."""
    script = """told(async () => load("/layer/plan.json", {
        device: await navigator.gpu.requestAdapter() }))"""
    check_error(page, script, "not a GPUDevice", code="device")


def test_a_device_of_the_caller_is_left_open(page: Page) -> None:
    """A device of the caller is used, checked for its limits, and left open."""
    result = page.evaluate(
        """async () => {
        const adapter = await navigator.gpu.requestAdapter();
        const device = await adapter.requestDevice();
        const before = devices.length;
        const run = await load("/layer/plan.json", { device });
        const { ok } = await run.check();
        run.close();
        const open = await Promise.race([device.lost, "open"]);
        const made = device.createBuffer({ size: 16, usage: 8 });
        const again = await load("/layer/plan.json", { device });
        const right = (await again.check()).ok;
        device.destroy();
        const { code } = await again.lost;
        const fresh = await told(() => load("/layer/plan.json", { device }));
        const limits = { maxBufferSize: 16 };
            const limited = { features: new Set(), limits, queue: {} };
        const small = await told(() => load("/layer/plan.json", { device: limited }));
        return [ok, open, right, devices.length - before, code, fresh.code, small];
        }"""
    )
    *known, small = result
    assert known == [True, "open", True, 0, "device-lost", "device-lost"]
    assert small["code"] == "limits"
    assert "the given device" in small["message"]
    assert "maxBufferSize: 7,680 needed, 16 here" in small["message"]


def test_out_of_memory_and_driver_errors_are_reported(page: Page) -> None:
    """Errors of the driver are reported in the browser's words.

    They come by a scope, or as an error that no scope caught.
    """
    message = check_error(
        page,
        """told(async () => {
        const { popErrorScope: inner } = GPUDevice.prototype;
        const none = () => new GPUOutOfMemoryError("no room");
        let popped = 0;
        GPUDevice.prototype.popErrorScope = function () {
            popped += 1;
            const answer = inner.call(this);
            return popped === 2 ? answer.then(none) : answer;
        };
        try { await load("/layer/plan.json"); }
        finally { GPUDevice.prototype.popErrorScope = inner; }
        })""",
        "no room",
        "close other tabs",
        code="out-of-memory",
    )
    assert re.search(r"create buffers of [\d,]+ bytes", message)
    check_error(
        page,
        f"""told(async () => {{
        const run = await load("/layer/plan.json");
        const error = new GPUInternalError("a driver's trouble");
        const event = new GPUUncapturedErrorEvent("uncapturederror", {{ error }});
        devices.at(-1).dispatchEvent(event);
        globalThis.later = run;
        await run({ONES_INPUT});
        }})""",
        "a driver's trouble",
        code="device",
    )
    assert page.evaluate("async () => (await later.check()).ok")


@pytest.mark.parametrize(
    "words",
    ["Array buffer allocation failed", "Out of memory", "allocation size overflow"],
)
def test_out_of_memory_for_an_array_is_reported(page: Page, words: str) -> None:
    """A failed array allocation is reported for each browser's wording; the next run
    works.
    """
    check_error(
        page,
        f"""told(async () => {{
        const run = globalThis.later = await load("/layer/plan.json");
        const given = {ONES_INPUT};
        const inner = globalThis.Uint8Array;
        globalThis.Uint8Array = class extends inner {{
            constructor(...rest) {{ super(...rest); throw new RangeError("{words}"); }}
        }};
        try {{ await run(given); }}
        finally {{ globalThis.Uint8Array = inner; }}
        }})""",
        words,
        "close other tabs",
        code="out-of-memory",
    )
    assert page.evaluate("async () => (await later.check()).ok")


def test_a_hundred_runs_leak_no_buffers(page: Page) -> None:
    """A hundred runs create no buffer, and none is left after `close`."""
    result = page.evaluate(
        f"""async () => {{
        const run = await load("/layer/plan.json");
        const before = buffers.made;
        for (let i = 0; i < 100; i += 1) await run({ONES_INPUT});
        const made = buffers.made - before;
        run.close();
        run.close();
        return [before > 0, made, buffers.made - buffers.destroyed];
        }}"""
    )
    assert result == [True, 0, 0]


def test_concurrent_calls_each_get_their_own_answer(page: Page) -> None:
    """Calls at the same time each have their own answer.

    That holds where an array is changed after the call, and where another call is
    refused.
    """
    result = page.evaluate(
        """async () => {
        const run = await load("/layer/plan.json");
        const x = new Float32Array(192);
        const calls = [];
        for (let i = 0; i < 20; i += 1) {
            x.fill(i);
            calls.push(run({ x }));
            if (i % 5 === 0) calls.push(told(() => run({ x: 1 })));
        }
        x.fill(-1);
        const found = await Promise.all(calls);
        const right = found.filter((one) => one.y);
        const codes = found.filter((one) => !one.y).map((one) => one.code);
        const totals = right.map((one) => one.total[0]);
        right[3].total.fill(77);
        const next = await run({ x: new Float32Array(192).fill(3) });
        return [totals, codes, next.total[0]];
        }"""
    )
    totals, codes, next_total = result
    assert totals == [48.0 * i for i in range(20)]
    assert codes == ["dtype"] * 4
    assert next_total == 144
