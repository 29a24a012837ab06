"""Saved graphs load bit for bit, and a broken copy is detected."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import (
    DTypeError,
    GraphFileError,
    RecordingError,
    SessionClosed,
    ShapeError,
    UnknownName,
    UsageError,
    VerifyError,
)
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.dtype import cast_array
from rlxweb.ir.op import Op, registry
from rlxweb.runtime.device_graph_cache import DeviceGraphCache
from tests.unit.runtime.sample_graph_files import (
    KEY,
    mlp_graph,
    mlp_weights,
    pack_file,
    save_to_bytes,
    split_file,
)

X = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)


def tiny_graph() -> rlx.Graph:
    g = rlx.Graph("t")
    g.set_outputs([g.input("x", (2,)) * 2.0])
    return g


def params_of_all_dtypes() -> rlx.Graph:
    """Return a graph with a param of every dtype."""
    g = rlx.Graph("types")
    outs = [
        g.param(str(dtype), (n,), dtype) for n, dtype in enumerate(rlx.DType, start=1)
    ]
    g.set_outputs(outs)
    return g


def random_params(graph: rlx.Graph) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    params = graph.named("param").items()
    return {
        name: cast_array(rng.random(node.type.shape) * 2, node.type.dtype)
        for name, node in params
    }


SMALL_FILES = {
    "tiny": save_to_bytes(tiny_graph()),
    "mlp": save_to_bytes(mlp_graph(), mlp_weights()),
    "types": save_to_bytes(
        params_of_all_dtypes(), random_params(params_of_all_dtypes())
    ),
}


@pytest.mark.parametrize("name", SMALL_FILES)
def test_saving_a_loaded_graph_gives_the_same_file(name: str) -> None:
    model = rlx.load(SMALL_FILES[name])
    resaved = save_to_bytes(model.graph, model.params, outputs=list(model.outputs))
    assert resaved == SMALL_FILES[name]


def test_a_file_without_a_newer_attribute_gets_its_default() -> None:
    """A file saved when lstm had fewer attributes gets their defaults."""
    g = rlx.Graph("old")
    gates, recurrent = g.input("gates", (3, 1, 20)), g.input("w", (1, 5, 20))
    g.set_outputs([g.apply("lstm", gates, recurrent)])

    def remove_new_attrs(record: dict[str, Any]) -> None:
        attrs = record["nodes"][-1]["attrs"]
        assert attrs.pop("shows") == "hidden"
        assert attrs.pop("quantized_state") is False

    current_file = save_to_bytes(g)
    header, record, data = split_file(current_file)
    remove_new_attrs(record)
    header["__metadata__"][KEY] = json.dumps(record)
    loaded_model = rlx.load(pack_file(json.dumps(header), data))
    assert (
        save_to_bytes(loaded_model.graph, outputs=list(loaded_model.outputs))
        == current_file
    )


def test_a_loaded_model_computes_what_the_graph_computes(tmp_path: Path) -> None:
    path = tmp_path / "m.rlxg"
    mlp_graph().save(path, mlp_weights(), outputs=["p", "q"])
    compiled = rlx.Session("cpu").compile(mlp_graph())
    compiled.set_param("w", mlp_weights()["w"])
    want = compiled.run({"x": X})
    with rlx.load(path) as model, path.open("rb") as file:
        assert list(model.outputs) == ["p", "q"]
        assert str(model.inputs["x"]) == "[2, 4] f32"
        got = model.run({"x": X}, device="cpu")
        assert [got["p"].tolist(), got["q"].tolist()] == [w.tolist() for w in want]
        assert "not compiled yet" not in model.explain()
        other = asyncio.run(rlx.load(file).run_async({"x": X}, device="cpu"))
        assert other["p"].tolist() == got["p"].tolist()
    with pytest.raises(rlx.RlxError, match="closed"):
        model.run({"x": X})


def test_outputs_stay_on_the_device_by_name() -> None:
    with rlx.load(SMALL_FILES["tiny"]) as model:
        (name,) = model.outputs
        device_array = model.run({"x": [1.0, 2.0]}, device="cpu", keep=[name])[name]
        assert isinstance(device_array, rlx.DeviceArray)
        assert model.run({"x": device_array}, device="cpu")[name].tolist() == [4.0, 8.0]
        with pytest.raises(UsageError, match="keep contains the unknown output 'no'"):
            model.run({"x": [1.0, 2.0]}, device="cpu", keep=["no"])


def test_closing_during_compilation_frees_the_graph() -> None:
    """A just compiled graph is freed when another call closes the model meanwhile."""
    places = DeviceGraphCache(mlp_graph())

    def params() -> Iterator[tuple[str, Any]]:
        places.close()
        yield from mlp_weights().items()

    with pytest.raises(SessionClosed, match="closed during compilation"):
        run_blocking(places.get_or_compile("cpu", "", params(), "run"))
    assert not places.compiled_graphs


def test_a_compiled_graph_is_saved_with_the_params_it_holds(tmp_path: Path) -> None:
    compiled = rlx.Session("cpu").compile(mlp_graph())
    compiled.set_param("w", mlp_weights()["w"])
    compiled.save(tmp_path / "m.rlxg")
    assert (tmp_path / "m.rlxg").read_bytes() == SMALL_FILES["mlp"]


def test_params_without_a_value_are_not_stored() -> None:
    model = rlx.load(save_to_bytes(mlp_graph()))
    assert model.params == {}
    with pytest.raises(rlx.RlxError, match="'w'"):
        model.run({"x": X}, device="cpu")


def test_weights_are_read_only_views_of_the_file(tmp_path: Path) -> None:
    """Weights are views of the file's memory, without a copy, and read-only."""
    path = tmp_path / "m.rlxg"
    path.write_bytes(SMALL_FILES["mlp"])
    array = rlx.load(path).params["w"]
    assert not array.flags.owndata
    assert not array.flags.writeable
    assert array.tolist() == mlp_weights()["w"].tolist()


def op_samples() -> Iterator[tuple[str, Op, int]]:
    for op in registry:
        for at in range(len(op.samples)):
            yield f"{op.name}-{at}", op, at


def test_every_sample_of_every_op_round_trips() -> None:
    """Every op round-trips with every sample, so no new kind of attribute is missed."""
    count = 0
    for name, op, at in op_samples():
        sample = op.samples[at]
        g = rlx.Graph(name)
        operands = [
            g.input(f"x{n}", operand.shape, operand.dtype)
            for n, operand in enumerate(sample.inputs)
        ]
        g.set_outputs([g.apply(op.name, *operands, **sample.attrs)])
        raw = save_to_bytes(g)
        model = rlx.load(raw)
        assert model.graph.key == g.key, name
        assert save_to_bytes(model.graph, outputs=list(model.outputs)) == raw, name
        count += 1
    assert count > 500


def test_floats_round_trip_bit_for_bit() -> None:
    g = rlx.Graph()
    x, ones = g.input("x", (2, 3)), g.constant([1.0] * 3)
    bits = np.array([0x7FC00001, 0x80000000, 0xFF800000, 1], np.uint32)
    g.set_outputs(
        [g.layer_norm(x, ones, ones, eps=e) for e in (0.1, 1e-300, 5e-324)]
        + [g.constant(bits.view(np.float32))]
    )
    loaded_graph = rlx.load(save_to_bytes(g)).graph
    nodes = [n for n in loaded_graph.nodes() if n.op == "layer_norm"]
    assert [n.attrs["eps"] for n in nodes] == [0.1, 1e-300, 5e-324]
    last = loaded_graph.node(loaded_graph.outputs[-1]).attrs["value"].array
    assert last.view(np.uint32).tolist() == bits.tolist()


def load_outcome(raw: bytes) -> str:
    """Return "read" for a graph that verifies, "refused" for an error with its byte
    offset.
    """
    try:
        model = rlx.load(raw)
    except GraphFileError as error:
        is_in_file = error.offset is not None and 0 <= error.offset <= len(raw)
        return "refused" if is_in_file else f"refused at {error.offset}"
    save_to_bytes(model.graph, model.params, outputs=list(model.outputs))
    return "read"


@pytest.mark.parametrize("name", SMALL_FILES)
def test_every_truncation_is_refused(name: str) -> None:
    raw = SMALL_FILES[name]
    assert {load_outcome(raw[:at]) for at in range(len(raw))} == {"refused"}


@pytest.mark.parametrize("name", SMALL_FILES)
def test_a_flipped_bit_is_refused_or_gives_a_graph(
    name: str, is_full_tier: bool
) -> None:
    """A flipped bit in the weights is a weight; one in the header is almost always
    detected.

    One bit of each byte, another in the next, or two: all eight took a minute in
    WebAssembly.
    """
    raw = bytearray(SMALL_FILES[name])
    outcomes = set()
    for at in range(len(raw)):
        for bit in (at % 8, (at + 3) % 8)[: 1 + is_full_tier]:
            raw[at] ^= 1 << bit
            outcomes.add(load_outcome(bytes(raw)))
            raw[at] ^= 1 << bit
    assert outcomes == {"read", "refused"}


def test_invalid_saves_are_refused_and_leave_no_file(tmp_path: Path) -> None:
    path = tmp_path / "m.rlxg"
    with pytest.raises(UnknownName, match="did you mean 'w'"):
        mlp_graph().save(path, {"W": mlp_weights()["w"]})
    with pytest.raises(DTypeError, match="float64"):
        mlp_graph().save(path, {"w": mlp_weights()["w"].astype(float)})
    with pytest.raises(ShapeError, match=r"\[3, 4\]"):
        mlp_graph().save(path, {"w": mlp_weights()["w"].T})
    with pytest.raises(UsageError, match="2 different names"):
        mlp_graph().save(path, outputs=["p", "p"])
    with pytest.raises(UsageError, match="a list of names"):
        mlp_graph().save(path, outputs=3)  # type: ignore[arg-type]
    with pytest.raises(VerifyError, match="no outputs"):
        rlx.Graph().save(path)
    for file, params, words in (
        (3, {}, "a path or an open file"),
        (io.StringIO(), {}, "mode 'wb'"),
        (path, [1], "params is a list"),
    ):
        with pytest.raises(UsageError, match=words):
            mlp_graph().save(file, params)  # type: ignore[arg-type]
    g = rlx.Graph("a\nb")
    g.set_outputs([g.input("x", 1)])
    with pytest.raises(GraphFileError, match="only printable characters"):
        g.save(path)
    with pytest.raises(RecordingError, match="the folder does not exist"):
        mlp_graph().save(tmp_path / "none" / "m.rlxg")
    assert list(tmp_path.iterdir()) == []


def test_invalid_files_are_refused(tmp_path: Path) -> None:
    for file, message in (
        (tmp_path / "none.rlxg", "the file does not exist"),
        (tmp_path, "folder"),
        (3, "a path, bytes or an open file"),
        (io.StringIO("text"), "mode 'rb'"),
    ):
        with pytest.raises(GraphFileError, match=message):
            rlx.load(file)  # type: ignore[arg-type]
    (tmp_path / "empty.rlxg").touch()
    with (tmp_path / "empty.rlxg").open("rb") as closed:
        pass
    with pytest.raises(GraphFileError, match="closed file"):
        rlx.load(closed)
    with pytest.raises(GraphFileError, match="0 bytes"):
        rlx.load(tmp_path / "empty.rlxg")
