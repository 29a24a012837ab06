"""`compiled.export_web`: what runs here, wherever that is, written down for a page."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import (
    InputError,
    SessionClosed,
    ShapeError,
    UnknownName,
    Unsupported,
    UsageError,
)
from rlxweb.gpu.drive import drive
from tests.plan_replay import Replay
from tests.unit.backends.test_protocol import Smallest, program_of

pytestmark = pytest.mark.requires_wgpu
W = np.linspace(-1, 1, 6, dtype="f4").reshape(2, 3)
M = np.array([True, False, True])
X = np.arange(8, dtype="f4").reshape(4, 2)


def _graph() -> rlx.Graph:
    g = rlx.Graph("lin")
    x, w, m = g.input("x", (4, 2)), g.param("w", (2, 3)), g.param("m", (3,), "bool")
    y = x @ w
    g.set_outputs([g.where(m, y, y * 0)])
    return g


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_params_come_from_where_they_are(device: str, tmp_path: Path) -> None:
    """Params come from a host's engine, a GPU and what lies there alone; bools too."""
    compiled = rlx.Session(device).compile(_graph())
    compiled.set_param("w", rlx.put(W, device=device))
    compiled.set_param("m", M)
    made = compiled.export_web(tmp_path / "out", outputs=["y"])
    page = Replay(made.folder)
    page.check()
    want = np.where(M, X @ W, 0)
    np.testing.assert_allclose(page.run({"x": X})["y"], want, atol=1e-6)
    (here,) = compiled.run({"x": X})
    np.testing.assert_allclose(here, want, atol=1e-6)


def test_what_was_written_before_a_param_changed_stays(tmp_path: Path) -> None:
    compiled = rlx.Session("cpu").compile(_graph())
    w = W.copy()
    compiled.set_param("w", w)
    compiled.set_param("m", M)
    w[:] = 0  # the caller's array is the caller's
    made = compiled.export_web(tmp_path / "out")
    compiled.set_param("w", w)
    np.testing.assert_allclose(
        Replay(made.folder).run({"x": X})["out0"], np.where(M, X @ W, 0), atol=1e-6
    )


def test_vectors_of_the_callers_own(tmp_path: Path) -> None:
    """The caller's vectors may be one, several or none; others are refused."""
    compiled = rlx.Session("cpu").compile(_graph())
    for name, value in (("w", W), ("m", M)):
        compiled.set_param(name, value)
    for at, vectors in enumerate(({"x": X}, [{"x": X}, {"x": -X}], 3, 0)):
        made = compiled.export_web(tmp_path / str(at), vectors=vectors)
        page = Replay(made.folder)
        cases = (page.plan["vectors"] or {"cases": []})["cases"]
        assert len(cases) == (1, 2, 3, 0)[at]
        for case in range(len(cases)):
            page.check(case)
        if vectors != 0 and not isinstance(vectors, int):
            np.testing.assert_array_equal(page.case(0)[0]["x"], X)
    wrong: list[tuple[Any, type[Exception]]] = [
        ({"x": X[:2]}, ShapeError),
        ({"z": X}, UnknownName),
        ({}, InputError),
        ("x", UsageError),
        (99, UsageError),
        (-1, UsageError),
        ([{"x": X}] * 17, UsageError),
    ]
    for vectors, error in wrong:
        with pytest.raises(error):
            compiled.export_web(tmp_path / "wrong", vectors=vectors)
    assert not (tmp_path / "wrong").exists()


def test_what_cannot_be_written(tmp_path: Path) -> None:
    compiled = rlx.Session("cpu").compile(_graph())
    compiled.set_param("m", M)
    with pytest.raises(InputError, match="param 'w' has no value; 1 of 2 params unset"):
        compiled.export_web(tmp_path / "out")
    compiled.set_param("w", W)
    for wrong in (
        {"limits": {"maxBufferSize": 1}},
        {"package": 3, "to": "npm"},
        {"features": "subgroups"},
        {"to": "zip"},
    ):
        with pytest.raises(UsageError):
            compiled.export_web(tmp_path / "out", **wrong)
    for folder in (None, 3, "a\0b", ""):
        with pytest.raises(UsageError):
            compiled.export_web(folder)
    assert not (tmp_path / "out").exists()
    given = os.fsencode(tmp_path / "out")
    made = compiled.export_web(
        given, package="@me/lin", to="npm", features="shader-f16"
    )
    assert made.folder == tmp_path / "out"
    compiled.close()
    with pytest.raises(SessionClosed):
        compiled.export_web(tmp_path / "out")
    engine = Smallest()
    with pytest.raises(Unsupported, match="does not give params back"):
        drive(engine.get_param(program_of(engine), "w"))


def test_what_rounding_decides_is_not_asked_of_a_page(tmp_path: Path) -> None:
    """An output that rounding decides is not compared, and that is said."""
    g = rlx.Graph("ties")
    x = g.input("x", (6,))
    g.set_outputs([g.exp(x) > g.exp(x) * 1.0000001, g.exp(x)])
    made = rlx.Session("cpu").compile(g).export_web(tmp_path / "out")
    plan = json.loads((made.folder / "plan.json").read_text())
    assert list(plan["vectors"]["cases"][0]["outputs"]) == ["out1"]
    assert made.notes == ("output 'out0' is not compared: rounding decides it",)


def test_what_is_not_finite_is_said(tmp_path: Path) -> None:
    g = rlx.Graph("poles")
    x = g.input("x", (6,))
    g.set_outputs([x / (x - x), x])
    made = rlx.Session("cpu").compile(g).export_web(tmp_path / "out")
    assert made.notes == ("6 of 6 of 'out0' are not finite",)


def test_large_arrays_are_compared_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawn inputs repeat what is stored, outputs end with it."""
    monkeypatch.setattr("rlxweb.export.vectors.STORED_BYTES", 400)
    g = rlx.Graph("large")
    g.set_outputs([g.input("x", (7, 99)) * 3])
    made = rlx.Session("cpu").compile(g).export_web(tmp_path / "out")
    page = Replay(made.folder)
    feeds, wanted = page.case(0)
    assert feeds["x"].shape == (7, 99)
    assert wanted["out0"]["want"].size == 100
    page.check()
    assert made.notes == ("of 'out0' 100 of 693 are compared",)


def test_inputs_of_no_type_of_a_page_that_nobody_reads_are_no_part_of_it(
    tmp_path: Path,
) -> None:
    g = rlx.Graph("unread")
    x, _ = g.input("x", (4,)), g.input("y", (3,), "f64")
    g.set_outputs([x * 2.0])
    feeds = {"x": np.ones(4, "f4"), "y": np.ones(3)}
    compiled = rlx.Session("cpu").compile(g)
    Replay(compiled.export_web(tmp_path / "out", vectors=[feeds]).folder).check()


def test_sizes_that_vary_are_bound_first(tmp_path: Path) -> None:
    g = rlx.Graph("varying")
    g.set_outputs([g.input("x", (rlx.Dim("n"), 2)) * 2.0])
    compiled = rlx.Session("cpu").compile(g)
    with pytest.raises(UsageError, match=r"vary: n; .*compiled.bind\(n=…\).export_web"):
        compiled.export_web(tmp_path / "out")
    Replay(compiled.bind(n=3).export_web(tmp_path / "out").folder).check()
