"""Compare every op saved as ONNX with ONNX Runtime and with ONNX's reference evaluator.

ONNX Runtime is asked first. Where it has no kernel for a type, or sums less exactly
than an op promises, ONNX's own reference is.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import rlxweb as rlx
from rlxweb.core.errors import (
    DTypeError,
    InputError,
    UnknownName,
    Unsupported,
    UsageError,
)
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import registry
from rlxweb.onnx import onnx_library_access
from tests.engines_under_test import describe_mismatch, reference_outputs
from tests.onnx.onnx_runtime import run_onnxruntime
from tests.ops.op_cases import OpCase, op_names, sample_cases
from tests.suite_tiers import thin_out_cases

UNSUPPORTED_OPS = {"max_pool_indices", "power_peaks", "welch_peaks", "welch_row_peaks"}
UNSUPPORTED_OPS |= {"bitcast", "non_max_suppression"}
"""Ops that ONNX has no form for."""
PARTLY_SUPPORTED_OPS = {"avg_pool", "lp_pool", "max_pool", "scatter_nd", "sum_pool"}
"""Ops of which ONNX cannot represent some attributes (a ceiling, axes of a batch)."""

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def run_onnx_reference(data: bytes, feeds: dict[str, Any]) -> list[Any]:
    """Return the outputs computed by ONNX's own evaluator."""
    return ReferenceEvaluator(onnx.load_from_string(data)).run(None, feeds)


def saved_bytes(graph: rlx.Graph, params: Any = None, **options: Any) -> bytes:
    file = io.BytesIO()
    rlx.onnx.save(graph, file, params, **options)
    return file.getvalue()


def export_mismatch(case: OpCase) -> str:
    """Return how every other engine differs, or "" if one agrees."""
    data, mismatches = saved_bytes(case.graph), []
    want = reference_outputs(case.graph, case.feeds)[0]
    tolerance = registry.get(case.graph.node(case.graph.outputs[0]).op).tolerance
    for engine in (run_onnxruntime, run_onnx_reference):
        try:
            got = np.asarray(engine(data, dict(case.feeds))[0])
        except Exception as error:  # of ONNX Runtime's own kinds: it has no kernel
            mismatches.append(f"{engine.__name__}: {str(error)[:200]}")
            continue
        why = describe_mismatch(got, want, case.output_dtype, tolerance)
        if not why:
            return ""
        mismatches.append(f"{engine.__name__}: {why}")
    return f"{case.label}: " + "; ".join(mismatches)


@pytest.mark.parametrize("name", thin_out_cases(op_names(), 2))
def test_every_exported_op_agrees_with_onnx_engines(name: str) -> None:
    cases = [case for case in sample_cases(name) if case.is_small]
    assert cases
    exported_count, failures = 0, []
    for case in cases:
        kinds = {node.type.dtype for node in case.graph.nodes()}
        try:
            # neither of them computes bfloat16: ONNX's checker, which saving asks, does
            has_bf16 = DType.BF16 in kinds and saved_bytes(case.graph)
            why = "" if has_bf16 else export_mismatch(case)
        except Unsupported as error:
            if (
                "unsupported type" not in str(error)
                and name not in UNSUPPORTED_OPS | PARTLY_SUPPORTED_OPS
            ):
                failures.append(f"{case.label}: {error}")
            continue
        exported_count += 1
        failures += [why] if why else []
    assert failures == []
    assert bool(exported_count) == (name not in UNSUPPORTED_OPS)


def mlp_graph() -> tuple[rlx.Graph, dict[str, Any]]:
    g = rlx.Graph("mlp")
    x, w, b = g.input("x", (4, 8)), g.param("w", (8, 3)), g.param("b", (3,))
    hidden = g.gelu(x @ w + b)
    g.set_outputs([g.softmax(hidden), hidden])
    rng = np.random.default_rng(2)
    values = {"w": rng.normal(size=(8, 3)), "b": rng.normal(size=3)}
    return g, {name: a.astype(np.float32) for name, a in values.items()}


def test_graph_with_params_round_trips_through_onnx(tmp_path: Path) -> None:
    g, params = mlp_graph()
    path = tmp_path / "mlp.onnx"
    rlx.onnx.save(g, path, params, outputs=["classes", "hidden"])
    x = np.random.default_rng(3).normal(size=(4, 8)).astype(np.float32)
    want = reference_outputs(g, {"x": x, **params})
    for got in (
        run_onnxruntime(path.read_bytes(), {"x": x}),
        list(rlx.onnx.load(path).run({"x": x}, device="cpu").values()),
    ):
        for output, expected in zip(got, want, strict=True):
            np.testing.assert_allclose(output, expected, rtol=2e-5, atol=2e-6)
    reloaded = rlx.onnx.load(path)
    assert list(reloaded.outputs) == ["classes", "hidden"]
    np.testing.assert_array_equal(reloaded.params["w"], params["w"])
    assert reloaded.producer == "rlxweb"


def test_a_compiled_graph_is_saved_with_its_params() -> None:
    g, params = mlp_graph()
    compiled = rlx.Session("cpu").compile(g)
    for name, value in params.items():
        compiled.set_param(name, value)
    file = io.BytesIO()
    rlx.onnx.save(compiled, file)
    assert file.getvalue() == saved_bytes(g, params)


def test_input_names_do_not_collide_with_generated_names() -> None:
    """Inputs may have names that are otherwise generated for the file."""
    g = rlx.Graph("names")
    g.set_outputs([g.rsqrt(g.input("v1", (2,))) + g.input("v2", (2,))])
    got = run_onnxruntime(
        saved_bytes(g), {"v1": np.full(2, 4, "f4"), "v2": np.ones(2, "f4")}
    )
    assert got[0].tolist() == [1.5, 1.5]


def test_output_may_be_input_or_constant() -> None:
    g = rlx.Graph("through")
    x = g.input("x", (2,))
    g.set_outputs([x, g.constant([1.0, 2.0]), x])
    got = run_onnxruntime(saved_bytes(g), {"x": np.array([3, 4], np.float32)})
    assert [output.tolist() for output in got] == [[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("opset", [20, 21, 23])
def test_several_opsets_are_written(opset: int) -> None:
    g, params = mlp_graph()
    x = np.ones((4, 8), np.float32)
    got = run_onnxruntime(saved_bytes(g, params, opset=opset), {"x": x})[0]
    want = reference_outputs(g, {"x": x, **params})[0]
    np.testing.assert_allclose(got, want, rtol=2e-5)


def test_all_unsupported_ops_are_named_at_once() -> None:
    g = rlx.Graph("peaks")
    x = g.input("x", (1, 1, 16, 16))
    a = g.apply("max_pool_indices", x, kernel=2)
    b = g.apply("power_peaks", g.input("p", (2, 32)), k=2)
    g.set_outputs([a, b])
    with pytest.raises(Unsupported, match=r"max_pool_indices \(1\), power_peaks \(1\)"):
        saved_bytes(g)


def test_invalid_export_arguments_are_rejected(tmp_path: Path) -> None:
    g, params = mlp_graph()
    path = tmp_path / "no.onnx"
    with pytest.raises(InputError, match=r"'b'.* no value is given"):
        rlx.onnx.save(g, path, {"w": params["w"]})
    with pytest.raises(UnknownName, match="no param 'q'"):
        rlx.onnx.save(g, path, {**params, "q": params["w"]})
    with pytest.raises(DTypeError, match="param 'w'"):
        rlx.onnx.save(g, path, {**params, "w": params["w"].astype(np.float64)})
    with pytest.raises(Unsupported, match="must be 20 to 25"):
        rlx.onnx.save(g, path, params, opset=7)
    with pytest.raises(UsageError, match="a path or an open file"):
        rlx.onnx.save(g, 3, params)  # type: ignore[arg-type]
    assert not path.exists()


def test_weights_over_protobuf_limit_are_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    g, params = mlp_graph()
    monkeypatch.setattr(onnx_library_access, "_MAX_PROTO_NBYTES", (1 << 20) + 64)
    with pytest.raises(Unsupported, match="the weights have 108 bytes"):
        saved_bytes(g, params)
