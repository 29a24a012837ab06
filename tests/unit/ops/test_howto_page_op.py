"""The manual's page about adding an op: its one record makes the whole op."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.cli_runners import ROOT, run_python

PAGE = ROOT / "site" / "pages" / "howto" / "add-an-op.md"
PROGRAM = """
import numpy as np
import rlxweb as rlx
from rlxweb.smoke.random_elementwise_ops import unary_ops

print(rlx.__file__)
x = np.array([0.2, 0.5, 0.9], np.float32)
g = rlx.Graph("new")
g.set_outputs([g.logit(g.input("x", 3))])
np.testing.assert_allclose(
    rlx.Session("cpu").compile(g).run({"x": x})[0], np.log(x / (1 - x)), 1e-5, 1e-6
)
slope = rlx.grad(lambda x: np.sum(rlx.nn.logit(x)))(x)
np.testing.assert_allclose(slope, 1 / (x * (1 - x)), 1e-5)
print("logit" in unary_ops(), rlx.ops()["logit"].family, rlx.Graph.logit.__doc__)
"""


def test_one_record_in_one_file_makes_an_op(tmp_path: Path) -> None:
    """Method, gradient, traced function, listing and random graphs come of it."""
    shutil.copytree(ROOT / "rlxweb", tmp_path / "rlxweb")
    shutil.copytree(ROOT / "shaders", tmp_path / "shaders")
    (block,) = (
        text
        for text in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
        if "smooth_function_op" in text
    )
    file = tmp_path / "rlxweb" / "ops" / "elementwise" / "unary_math.py"
    file.write_text(f"{file.read_text('utf-8')}\n\n{block}", "utf-8")
    result = run_python("-c", PROGRAM, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert result.code == 0, result.err
    package_file, summary = result.out.splitlines()
    assert Path(package_file).is_relative_to(tmp_path)
    assert summary == ("True elementwise The logarithm of the odds, log(x / (1 - x)).")
