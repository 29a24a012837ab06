"""Check which inputs an exported plan refuses in a browser, and which unusual ones it
accepts.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from playwright.sync_api import Page

from tests.browser.exported_plan_server import (
    SAMPLES,
    ExportServer,
    blank,
    check_error,
    exports,
    page,
    watch,
    written,
)

__all__ = ["blank", "exports", "page", "watch", "written"]
pytestmark = pytest.mark.requires_browser

PEAKS_INPUT = f"new Float32Array({5 * SAMPLES}).fill(1)"
INVALID_INPUTS: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {
    "layer": [
        ("", "dtype", ("x is undefined", "Float32Array (f32) of 4 × 48 = 192 values")),
        ("{ x: null }", "dtype", ("x is null",)),
        ("{ x: [1, 2] }", "dtype", ("x is Array",)),
        ("{ x: new Float64Array(192) }", "dtype", ("x is Float64Array",)),
        ("{ x: new ArrayBuffer(768) }", "dtype", ("x is ArrayBuffer",)),
        ('{ x: "1" }', "dtype", ("x is String",)),
        ("{ x: new Float32Array(191) }", "shape", ("191 values", "= 192")),
        ("{ x: detached }", "shape", ("x has 0 values",)),
        (
            "{ x: new Float32Array(192), y: 1 }",
            "input",
            ("layer has no input y", "its inputs: x"),
        ),
        ("{ toString: new Float32Array(192) }", "input", ("no input toString",)),
    ],
    "kinds": [
        (
            "{ x: new Float32Array(6), n: new Int32Array(3), u: new Int32Array(3) }",
            "dtype",
            ("u is Int32Array", "Uint32Array (u32)"),
        ),
    ],
    "table": [
        ("{ rows: Int32Array.of(0, 5, 6, 1) }", "index", ("table", "at least 0")),
        ("{ rows: Int32Array.of(0, -7, 2, 1) }", "index", ("out of range",)),
    ],
    "tokens": [
        (
            "{ ids: BigInt64Array.of(0n, 1n, 4194304n, 2n), sizes }",
            "range",
            (
                "ids is 4,194,304 at index 2",
                "not support i64",
                "-2,097,151 to 2,097,151",
            ),
        ),
        (
            "{ ids: Int32Array.of(0, 1, 1, 1), sizes: sizes.map(() => 2n ** 32n) }",
            "range",
            (
                "sizes is 4,294,967,296 at index 0",
                "not support u64",
                "0 to 4,294,967,295",
            ),
        ),
        (
            "{ ids: new Float64Array(4), sizes }",
            "dtype",
            ("ids is Float64Array", "BigInt64Array (i64)"),
        ),
    ],
    "peaks": [
        (
            f"{{ x: {PEAKS_INPUT}.fill(NaN, 1300, 1301) }}",
            "not-finite",
            ("row 2", "NaN", "sample 20 of 640"),
        ),
        (
            f"{{ x: {PEAKS_INPUT}.fill(-Infinity, 3199) }}",
            "not-finite",
            ("row 4", "-Infinity", "sample 639"),
        ),
        (
            f"{{ x: {PEAKS_INPUT}.fill(2e38, 640, 1280) }}",
            "range",
            ("row 1", "1e80", "3e38"),
        ),
    ],
}


@pytest.mark.parametrize("plan", INVALID_INPUTS)
def test_an_invalid_input_is_refused_with_the_expected_type(
    page: Page, plan: str
) -> None:
    """An invalid input is refused with the expected type, and the next check passes."""
    page.evaluate(
        f"""async () => {{
        globalThis.run = await load("/{plan}/plan.json");
        globalThis.detached = new Float32Array(192);
        globalThis.sizes = BigUint64Array.of(0n, 4294967295n, 3000000000n, 1n);
        structuredClone(detached.buffer, {{ transfer: [detached.buffer] }});
        }}"""
    )
    for inputs_source, code, words in INVALID_INPUTS[plan]:
        check_error(page, f"told(() => run({inputs_source}))", *words, code=code)
    assert page.evaluate("async () => (await run.check()).ok")


def test_an_array_of_an_iframe_is_accepted(page: Page) -> None:
    """An array of an iframe is accepted, though no instance of this page's
    Float32Array.
    """
    assert page.evaluate(
        """async () => {
        const frame = document.body.appendChild(document.createElement("iframe"));
        const x = new frame.contentWindow.Float32Array(192).fill(2);
        const run = await load("/layer/plan.json");
        return !(x instanceof Float32Array) && (await run({ x })).total[0] === 96;
        }"""
    )


def test_64_bit_integers_are_accepted_and_returned(page: Page) -> None:
    """64-bit integers are BigInts; narrower arrays are accepted for them too."""
    assert (
        page.evaluate(
            """async () => {
        const run = await load("/tokens/plan.json");
        const sizes = BigUint64Array.of(0n, 4294967295n, 3000000000n, 3000000001n);
        const both = [BigInt64Array.of(5n, 0n, 1n, 2n), Int32Array.of(5, 0, 1, 2)];
        const made = await Promise.all(both.map((ids) => run({ ids, sizes })));
        return made.map(({ found, scaled, far }) =>
            [found[0], scaled instanceof BigInt64Array, `${scaled}`, `${far}`]);
        }"""
        )
        == [[15, True, "5000,0,1000,2000", "0,1,0,1"]] * 2
    )


def test_resizable_memory_is_accepted(page: Page) -> None:
    """WebGPU itself refuses views of resizable memory, unless it is shared."""
    assert page.evaluate(
        """async () => {
        const run = await load("/layer/plan.json");
        const most = { maxByteLength: 4096 };
        const memory = new WebAssembly.Memory({ initial: 1, maximum: 2, shared: true });
        const totals = [];
        for (const buffer of [new ArrayBuffer(768, most), memory.buffer]) {
            const x = new Float32Array(buffer, 0, 192).fill(2);
            totals.push((await run({ x })).total[0]);
        }
        return totals;
        }"""
    ) == [96, 96]


def test_a_check_without_vectors_is_refused(exports: ExportServer, page: Page) -> None:
    """A plan without vectors runs, and its check is refused."""
    plan = json.loads((exports.folder / "kinds" / "plan.json").read_text("utf-8"))
    text = json.dumps({**plan, "vectors": None})
    exports.faults["/kinds/plan.json"] = text.encode()
    script = 'told(async () => (await load("/kinds/plan.json")).check())'
    check_error(page, script, "without test vectors", code="plan")


def test_a_check_notices_one_changed_bit(exports: ExportServer, page: Page) -> None:
    """A check notices one changed bit in each of Welch's tables and its floor, and a
    changed sign in a shader.

    The sign is one in a shader.
    """
    script = "async () => (await (await load('/peaks/plan.json')).check()).ok"
    plan = json.loads((exports.folder / "peaks" / "software.json").read_text("utf-8"))
    weights = (exports.folder / "peaks" / "weights.bin").read_bytes()
    tables = [
        (start, np.frombuffer(weights, np.float32, nbytes // 4, start))
        for buffer, _, start, nbytes in plan["weights"]["writes"]
        if plan["buffers"][buffer]["usage"] == "storage"
    ]
    # The last bit of an exponent: twice as much, or half.
    changed = {start + 4 * int(np.argmax(abs(x))) + 2: 0x80 for start, x in tables}
    start, nbytes = plan["welch"]["floor"]
    changed[start + nbytes // 2 // 8 * 8 + 7] = 0x40  # the first, of a bin between
    assert len(changed) >= 3
    for offset, bit in changed.items():
        body = bytearray(weights)
        body[offset] ^= bit
        exports.faults["/peaks/weights.bin"] = bytes(body)
        assert page.evaluate(script) is False, offset
        body[offset - 2 : offset + 2] = np.float32(
            3e38
        ).tobytes()  # powers of it are infinite
        exports.faults["/peaks/weights.bin"] = bytes(body)
        assert page.evaluate(script) is False, offset
    exports.faults.clear()
    assert page.evaluate(script) is True
    shader = (exports.folder / "layer" / "shaders" / "00-matmul_tanh.wgsl").read_text(
        "utf-8"
    )
    changed_shader = shader.replace("stable_tanh(r0)", "stable_tanh(-r0)")
    assert changed_shader != shader
    exports.faults["/layer/shaders/00-matmul_tanh.wgsl"] = changed_shader.encode()
    assert page.evaluate(script.replace("peaks", "layer")) is False


def test_float16_outputs_are_compared_as_numbers(
    exports: ExportServer, page: Page
) -> None:
    """A check compares float16 values as numbers, not as bits.

    0 is -0, a NaN is not asked, and a tolerance is one of numbers. No GPU here has f16,
    so words of an integer are read as two.
    """
    kinds = exports.folder / "kinds"
    plan = json.loads((kinds / "plan.json").read_text("utf-8"))
    squared = plan["vectors"]["cases"][0]["outputs"]["squared"]
    start, end = squared["from"], squared["from"] + squared["nbytes"]
    vectors = (kinds / "vectors.bin").read_bytes()
    expected = np.frombuffer(vectors[start:end], np.float16)
    assert expected.size == 6
    assert expected[1] == 0.0
    squared |= {"dtype": "f16", "atol": 1e-6}
    plan["outputs"]["squared"] |= {"dtype": "f16", "shape": [6]}
    plan["vectors"]["cases"][0]["outputs"] = {"squared": squared}
    exports.faults["/kinds/plan.json"] = json.dumps(plan).encode()
    script = 'async () => (await load("/kinds/plan.json")).check()'
    for values, ok, compared in (
        (
            [expected[0], -0.0, np.nan, 0.0, expected[4] + np.float16(9e-7), 0.0],
            True,
            5,
        ),
        ([expected[0], 0.0, 0.0, 0.0, expected[4], 2e-6], False, 6),
        ([expected[0], 0.0, 0.0, 0.0, expected[4], -1.0], False, 6),
    ):
        body = np.array(values, np.float16).tobytes()
        exports.faults["/kinds/vectors.bin"] = vectors[:start] + body + vectors[end:]
        result = page.evaluate(script)
        assert (result["ok"], result["compared"]) == (ok, compared), result
    assert (result["worst"]["got"], result["worst"]["want"]) == (0, -1)
