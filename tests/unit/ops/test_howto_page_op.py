"""The manual's page about adding an op: its one record makes the whole op."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.howto_pages import code_blocks, copy_package, run_copy

PROGRAM = """
import numpy as np
import rlxweb as rlx
from rlxweb.smoke.random_elementwise_ops import unary_ops

print(rlx.__file__)
x = np.array([0.2, 0.5, 0.9], np.float32)
g = rlx.Graph("new")
g.set_outputs([g.logit(g.input("x", 3), scale=2.0)])
np.testing.assert_allclose(
    rlx.Session("cpu").compile(g).run({"x": x})[0], 2 * np.log(x / (1 - x)), 1e-5, 1e-6
)
slope = rlx.grad(lambda x: np.sum(rlx.nn.logit(x)))(x)
np.testing.assert_allclose(slope, 1 / (x * (1 - x)), 1e-5)
print("logit" in unary_ops(), rlx.ops()["logit"].family, rlx.Graph.logit.__doc__)
"""


KERNEL_PROGRAM = """
import numpy as np
import rlxweb as rlx
from rlxweb.errors import ShapeError

rng = np.random.default_rng(0)
x, y = rng.standard_normal((2, 5, 300)).astype(np.float32)
g = rlx.Graph("rows")
g.set_outputs([g.row_dot(g.input("x", x.shape), g.input("y", y.shape))])
for device in ("cpu", "vulkan"):
    (out,) = rlx.Session(device).compile(g).run({"x": x, "y": y})
    np.testing.assert_allclose(out, (x * y).sum(-1), 1e-4, 1e-4)
gradient = rlx.grad(lambda x: np.sum(rlx.nn.row_dot(x, y)))(x)
np.testing.assert_array_equal(gradient, y)
try:
    g.row_dot(g.input("a", (3,)), g.input("b", (4,)))
except ShapeError as error:
    print(error)
print(rlx.ops()["row_dot"].family)
"""


@pytest.mark.requires_wgpu
def test_a_record_and_a_shader_make_an_op_with_a_kernel(tmp_path: Path) -> None:
    """Both engines compute it, it has a derivative, and it refuses wrong shapes."""
    copy_package(tmp_path)
    (record,) = (t for t in code_blocks("add-an-op", "python") if "row_dot" in t)
    (shader,) = code_blocks("add-an-op", "wgsl")
    ops = tmp_path / "rlxweb" / "ops"
    (ops / "reduce" / "row_dot.py").write_text(record, "utf-8")
    (tmp_path / "shaders" / "reduce" / "row_dot.wgsl").write_text(shader, "utf-8")
    modules = (ops / "__init__.py").read_text("utf-8")
    row = '    "reduce.argminmax",\n'
    assert row in modules
    modules = modules.replace(row, f'{row}    "reduce.row_dot",\n')
    (ops / "__init__.py").write_text(modules, "utf-8")
    refusal, family = run_copy(tmp_path, KERNEL_PROGRAM)
    assert refusal.startswith("row_dot of [3] f32, [4] f32: got [3] and [4]; both must")
    assert family == "reduce"


def test_one_record_in_one_file_makes_an_op(tmp_path: Path) -> None:
    """Method, gradient, traced function, listing and random graphs come of it."""
    copy_package(tmp_path)
    (block,) = (
        text
        for text in code_blocks("add-an-op", "python")
        if "smooth_function_op" in text
    )
    file = tmp_path / "rlxweb" / "ops" / "elementwise" / "unary_math.py"
    file.write_text(f"{file.read_text('utf-8')}\n\n{block}", "utf-8")
    package_file, summary = run_copy(tmp_path, PROGRAM)
    assert Path(package_file).is_relative_to(tmp_path)
    assert summary.startswith("True elementwise scale times the logarithm of the odds")


METHOD_PROGRAM = """
import numpy as np
import rlxweb as rlx

x = np.full((3, 4), 200, np.float16)  # of which a sum of squares exceeds f16
g = rlx.Graph("squares")
g.set_outputs([g.mean_square(g.input("x", x.shape, "f16"), 0)])
(out,) = rlx.Session("cpu").compile(g).run({"x": x})
print(out.dtype, out.tolist())
"""


def test_a_function_of_a_graph_makes_a_method(tmp_path: Path) -> None:
    """The method is a graph's, and has the range of f32 within."""
    copy_package(tmp_path)
    (block,) = (t for t in code_blocks("add-an-op", "python") if "mean_square" in t)
    file = tmp_path / "rlxweb" / "ops" / "reduce" / "methods.py"
    file.write_text(f"{file.read_text('utf-8')}\n\n{block}", "utf-8")
    assert run_copy(tmp_path, METHOD_PROGRAM) == [f"float16 {[40_000.0] * 4}"]
