"""What is saved as ONNX computes the same elsewhere: every op, by two others' engines.

ONNX Runtime is asked first. Where it has no kernel for a type, or sums less exactly
than an op promises, ONNX's own reference is.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

import rlxweb as rlx
from rlxweb.errors import DTypeError, InputError, UnknownName, Unsupported, UsageError
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import registry
from rlxweb.onnx import library
from tests.agreement import judge, oracle
from tests.ops.ways import Case, names, plain
from tests.tiers import thinned

NEVER = {"max_pool_indices", "power_peaks", "welch_peaks", "welch_row_peaks"}
NEVER |= {"bitcast", "non_max_suppression"}
"""Ops that ONNX has no form for."""
AT_TIMES = {"avg_pool", "lp_pool", "max_pool", "scatter_nd", "sum_pool"}
"""Some of whose attributes (a ceiling, axes of a batch) ONNX has otherwise, or not."""

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def runtime(data: bytes, feeds: dict[str, Any]) -> list[Any]:
    """The outputs by ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        data, options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


def reference(data: bytes, feeds: dict[str, Any]) -> list[Any]:
    """The outputs by ONNX's own evaluator."""
    return ReferenceEvaluator(onnx.load_from_string(data)).run(None, feeds)


def saved(graph: rlx.Graph, params: Any = None, **how: Any) -> bytes:
    file = io.BytesIO()
    rlx.onnx.save(graph, file, params, **how)
    return file.getvalue()


def wrong(case: Case) -> str:
    """What every other engine says differs; "" where one agrees."""
    data, said = saved(case.graph), []
    want = oracle(case.graph, case.feeds)[0]
    tolerance = registry.get(case.graph.node(case.graph.outputs[0]).op).tolerance
    for engine in (runtime, reference):
        try:
            got = np.asarray(engine(data, dict(case.feeds))[0])
        except Exception as error:  # of ONNX Runtime's own kinds: it has no kernel
            said.append(f"{engine.__name__}: {str(error)[:200]}")
            continue
        why = judge(got, want, case.out, tolerance)
        if not why:
            return ""
        said.append(f"{engine.__name__}: {why}")
    return f"{case.label}: " + "; ".join(said)


@pytest.mark.parametrize("name", thinned(names(), 2))
def test_every_op_is_computed_alike_elsewhere(name: str) -> None:
    cases = [case for case in plain(name) if case.is_small]
    assert cases
    written, said = 0, []
    for case in cases:
        kinds = {node.type.dtype for node in case.graph.nodes()}
        try:
            # neither of them computes bfloat16: ONNX's checker, which saving asks, does
            has_bf16 = DType.BF16 in kinds and saved(case.graph)
            why = "" if has_bf16 else wrong(case)
        except Unsupported as error:
            if "unsupported type" not in str(error) and name not in NEVER | AT_TIMES:
                said.append(f"{case.label}: {error}")
            continue
        written += 1
        said += [why] if why else []
    assert said == []
    assert bool(written) == (name not in NEVER)


def mlp() -> tuple[rlx.Graph, dict[str, Any]]:
    g = rlx.Graph("mlp")
    x, w, b = g.input("x", (4, 8)), g.param("w", (8, 3)), g.param("b", (3,))
    hidden = g.gelu(x @ w + b)
    g.set_outputs([g.softmax(hidden), hidden])
    rng = np.random.default_rng(2)
    values = {"w": rng.normal(size=(8, 3)), "b": rng.normal(size=3)}
    return g, {name: a.astype(np.float32) for name, a in values.items()}


def test_a_graph_with_params_runs_elsewhere_and_comes_back(tmp_path: Path) -> None:
    g, params = mlp()
    path = tmp_path / "mlp.onnx"
    rlx.onnx.save(g, path, params, outputs=["classes", "hidden"])
    x = np.random.default_rng(3).normal(size=(4, 8)).astype(np.float32)
    want = oracle(g, {"x": x, **params})
    for got in (
        runtime(path.read_bytes(), {"x": x}),
        list(rlx.onnx.load(path).run({"x": x}, device="cpu").values()),
    ):
        for one, right in zip(got, want, strict=True):
            np.testing.assert_allclose(one, right, rtol=2e-5, atol=2e-6)
    back = rlx.onnx.load(path)
    assert list(back.outputs) == ["classes", "hidden"]
    np.testing.assert_array_equal(back.params["w"], params["w"])
    assert back.producer == "rlxweb"


def test_a_compiled_graph_is_saved_with_its_params() -> None:
    g, params = mlp()
    compiled = rlx.Session("cpu").compile(g)
    for name, value in params.items():
        compiled.set_param(name, value)
    file = io.BytesIO()
    rlx.onnx.save(compiled, file)
    assert file.getvalue() == saved(g, params)


def test_names_of_the_graph_stay_apart_from_ours() -> None:
    """Inputs may be called like names that are made up for the file."""
    g = rlx.Graph("names")
    g.set_outputs([g.rsqrt(g.input("v1", (2,))) + g.input("v2", (2,))])
    got = runtime(saved(g), {"v1": np.full(2, 4, "f4"), "v2": np.ones(2, "f4")})
    assert got[0].tolist() == [1.5, 1.5]


def test_an_output_may_be_an_input_or_a_constant() -> None:
    g = rlx.Graph("through")
    x = g.input("x", (2,))
    g.set_outputs([x, g.constant([1.0, 2.0]), x])
    got = runtime(saved(g), {"x": np.array([3, 4], np.float32)})
    assert [one.tolist() for one in got] == [[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("opset", [20, 21, 23])
def test_several_versions_are_written(opset: int) -> None:
    g, params = mlp()
    x = np.ones((4, 8), np.float32)
    got = runtime(saved(g, params, opset=opset), {"x": x})[0]
    want = oracle(g, {"x": x, **params})[0]
    np.testing.assert_allclose(got, want, rtol=2e-5)


def test_all_that_has_no_form_is_named_at_once() -> None:
    g = rlx.Graph("peaks")
    x = g.input("x", (1, 1, 16, 16))
    a = g.apply("max_pool_indices", x, kernel=2)
    b = g.apply("power_peaks", g.input("p", (2, 32)), k=2)
    g.set_outputs([a, b])
    with pytest.raises(Unsupported, match=r"max_pool_indices \(1\), power_peaks \(1\)"):
        saved(g)


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    g, params = mlp()
    path = tmp_path / "no.onnx"
    with pytest.raises(InputError, match=r"'b'.* it has no value"):
        rlx.onnx.save(g, path, {"w": params["w"]})
    with pytest.raises(UnknownName, match="no param 'q'"):
        rlx.onnx.save(g, path, {**params, "q": params["w"]})
    with pytest.raises(DTypeError, match="param 'w'"):
        rlx.onnx.save(g, path, {**params, "w": params["w"].astype(np.float64)})
    with pytest.raises(Unsupported, match="20 to 25 can be written"):
        rlx.onnx.save(g, path, params, opset=7)
    with pytest.raises(UsageError, match="a path or an open file"):
        rlx.onnx.save(g, 3, params)  # type: ignore[arg-type]
    assert not path.exists()


def test_more_than_a_file_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    g, params = mlp()
    monkeypatch.setattr(library, "_PROTO_LIMIT", (1 << 20) + 64)
    with pytest.raises(Unsupported, match="its weights have 108 bytes"):
        saved(g, params)
