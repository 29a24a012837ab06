"""What is saved is what is loaded, to the last bit, and a broken copy is noticed."""

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
from rlxweb.errors import (
    DTypeError,
    GraphFileError,
    RecordingError,
    SessionClosed,
    ShapeError,
    UnknownName,
    UsageError,
    VerifyError,
)
from rlxweb.gpu.drive import drive
from rlxweb.ir.dtype import cast_to
from rlxweb.ir.op import Op, registry
from rlxweb.runtime.on_devices import OnDevices
from tests.unit.graphfile.files import KEY, mlp, packed, parts, saved, weights

X = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)


def tiny() -> rlx.Graph:
    g = rlx.Graph("t")
    g.set_outputs([g.input("x", (2,)) * 2.0])
    return g


def packed_types() -> rlx.Graph:
    """Params of one, two, four and eight bytes."""
    g = rlx.Graph("types")
    outs = [
        g.param(str(dtype), (n,), dtype) for n, dtype in enumerate(rlx.DType, start=1)
    ]
    g.set_outputs(outs)
    return g


def values(graph: rlx.Graph) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    params = graph.named("param").items()
    return {
        name: cast_to(rng.random(node.type.shape) * 2, node.type.dtype)
        for name, node in params
    }


SMALL = {
    "tiny": saved(tiny()),
    "mlp": saved(mlp(), weights()),
    "types": saved(packed_types(), values(packed_types())),
}


@pytest.mark.parametrize("name", SMALL)
def test_what_is_loaded_and_saved_again_is_the_same_file(name: str) -> None:
    model = rlx.load(SMALL[name])
    again = saved(model.graph, model.params, outputs=list(model.outputs))
    assert again == SMALL[name]


def test_a_file_from_before_an_attribute_means_its_default() -> None:
    """A file of a release whose lstm had fewer attributes means their defaults."""
    g = rlx.Graph("old")
    gates, recurrent = g.input("gates", (3, 1, 20)), g.input("w", (1, 5, 20))
    g.set_outputs([g.apply("lstm", gates, recurrent)])

    def older(record: dict[str, Any]) -> None:
        attrs = record["nodes"][-1]["attrs"]
        assert attrs.pop("shows") == "hidden"
        assert attrs.pop("quantized_state") is False

    whole = saved(g)
    header, record, data = parts(whole)
    older(record)
    header["__metadata__"][KEY] = json.dumps(record)
    old = rlx.load(packed(json.dumps(header), data))
    assert saved(old.graph, outputs=list(old.outputs)) == whole


def test_a_run_gives_what_the_graph_gives(tmp_path: Path) -> None:
    path = tmp_path / "m.rlxg"
    mlp().save(path, weights(), outputs=["p", "q"])
    compiled = rlx.Session("cpu").compile(mlp())
    compiled.set_param("w", weights()["w"])
    want = compiled.run({"x": X})
    with rlx.load(path) as model, path.open("rb") as file:
        assert list(model.outputs) == ["p", "q"]
        assert str(model.inputs["x"]) == "[2, 4] f32"
        got = model.run({"x": X}, device="cpu")
        assert [got["p"].tolist(), got["q"].tolist()] == [w.tolist() for w in want]
        assert "nothing was compiled" not in model.explain()
        other = asyncio.run(rlx.load(file).run_async({"x": X}, device="cpu"))
        assert other["p"].tolist() == got["p"].tolist()
    with pytest.raises(rlx.RlxError, match="closed"):
        model.run({"x": X})


def test_outputs_stay_on_the_device_by_name() -> None:
    with rlx.load(SMALL["tiny"]) as model:
        (name,) = model.outputs
        there = model.run({"x": [1.0, 2.0]}, device="cpu", keep=[name])[name]
        assert isinstance(there, rlx.DeviceArray)
        assert model.run({"x": there}, device="cpu")[name].tolist() == [4.0, 8.0]
        with pytest.raises(UsageError, match="keep names 'no'"):
            model.run({"x": [1.0, 2.0]}, device="cpu", keep=["no"])


def test_what_is_closed_while_it_is_compiled_keeps_nothing() -> None:
    """What was just compiled is freed when another closes the graph meanwhile."""
    places = OnDevices(mlp())

    def params() -> Iterator[tuple[str, Any]]:
        places.close()
        yield from weights().items()

    with pytest.raises(SessionClosed, match="closed meanwhile"):
        drive(places.on("cpu", "", params(), "run"))
    assert not places.made


def test_a_compiled_graph_is_saved_with_the_params_it_holds(tmp_path: Path) -> None:
    compiled = rlx.Session("cpu").compile(mlp())
    compiled.set_param("w", weights()["w"])
    compiled.save(tmp_path / "m.rlxg")
    assert (tmp_path / "m.rlxg").read_bytes() == SMALL["mlp"]


def test_params_without_a_value_are_none_in_the_file() -> None:
    model = rlx.load(saved(mlp()))
    assert model.params == {}
    with pytest.raises(rlx.RlxError, match="'w'"):
        model.run({"x": X}, device="cpu")


def test_weights_are_looked_at_where_they_lie(tmp_path: Path) -> None:
    """Weights are the file's memory, without a copy, and nobody writes into them."""
    path = tmp_path / "m.rlxg"
    path.write_bytes(SMALL["mlp"])
    array = rlx.load(path).params["w"]
    assert not array.flags.owndata
    assert not array.flags.writeable
    assert array.tolist() == weights()["w"].tolist()


def samples() -> Iterator[tuple[str, Op, int]]:
    for op in registry:
        for at in range(len(op.samples)):
            yield f"{op.name}-{at}", op, at


def test_every_op_with_every_sample_comes_back() -> None:
    """Every op with every sample comes back, so no new kind of attribute is missed."""
    count = 0
    for name, op, at in samples():
        sample = op.samples[at]
        g = rlx.Graph(name)
        operands = [
            g.input(f"x{n}", one.shape, one.dtype)
            for n, one in enumerate(sample.inputs)
        ]
        g.set_outputs([g.apply(op.name, *operands, **sample.attrs)])
        raw = saved(g)
        model = rlx.load(raw)
        assert model.graph.key == g.key, name
        assert saved(model.graph, outputs=list(model.outputs)) == raw, name
        count += 1
    assert count > 500


def test_floats_come_back_to_the_last_bit() -> None:
    g = rlx.Graph()
    x, ones = g.input("x", (2, 3)), g.constant([1.0] * 3)
    bits = np.array([0x7FC00001, 0x80000000, 0xFF800000, 1], np.uint32)
    g.set_outputs(
        [g.layer_norm(x, ones, ones, eps=e) for e in (0.1, 1e-300, 5e-324)]
        + [g.constant(bits.view(np.float32))]
    )
    made = rlx.load(saved(g)).graph
    nodes = [n for n in made.nodes() if n.op == "layer_norm"]
    assert [n.attrs["eps"] for n in nodes] == [0.1, 1e-300, 5e-324]
    last = made.node(made.outputs[-1]).attrs["value"].array
    assert last.view(np.uint32).tolist() == bits.tolist()


def outcome(raw: bytes) -> str:
    """Nothing but a graph that verifies, or an error with its byte."""
    try:
        model = rlx.load(raw)
    except GraphFileError as error:
        there = error.offset is not None and 0 <= error.offset <= len(raw)
        return "refused" if there else f"refused at {error.offset}"
    saved(model.graph, model.params, outputs=list(model.outputs))
    return "read"


@pytest.mark.parametrize("name", SMALL)
def test_every_truncation_is_refused(name: str) -> None:
    raw = SMALL[name]
    assert {outcome(raw[:at]) for at in range(len(raw))} == {"refused"}


@pytest.mark.parametrize("name", SMALL)
def test_a_bit_flipped_anywhere_is_refused_or_gives_a_graph(
    name: str, is_full_tier: bool
) -> None:
    """One in the weights is a weight; one in the header is almost always seen.

    One bit of each byte, another in the next, or two: all eight took a minute in
    WebAssembly.
    """
    raw = bytearray(SMALL[name])
    seen = set()
    for at in range(len(raw)):
        for bit in (at % 8, (at + 3) % 8)[: 1 + is_full_tier]:
            raw[at] ^= 1 << bit
            seen.add(outcome(bytes(raw)))
            raw[at] ^= 1 << bit
    assert seen == {"read", "refused"}


def test_what_cannot_be_saved_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.rlxg"
    with pytest.raises(UnknownName, match="did you mean 'w'"):
        mlp().save(path, {"W": weights()["w"]})
    with pytest.raises(DTypeError, match="float64"):
        mlp().save(path, {"w": weights()["w"].astype(float)})
    with pytest.raises(ShapeError, match=r"\[3, 4\]"):
        mlp().save(path, {"w": weights()["w"].T})
    with pytest.raises(UsageError, match="2 different names"):
        mlp().save(path, outputs=["p", "p"])
    with pytest.raises(UsageError, match="a list of names"):
        mlp().save(path, outputs=3)  # type: ignore[arg-type]
    with pytest.raises(VerifyError, match="no outputs"):
        rlx.Graph().save(path)
    for file, params, words in (
        (3, {}, "a path or an open file"),
        (io.StringIO(), {}, "mode 'wb'"),
        (path, [1], "params are a list"),
    ):
        with pytest.raises(UsageError, match=words):
            mlp().save(file, params)  # type: ignore[arg-type]
    g = rlx.Graph("a\nb")
    g.set_outputs([g.input("x", 1)])
    with pytest.raises(GraphFileError, match="can be printed"):
        g.save(path)
    with pytest.raises(RecordingError, match="no such folder"):
        mlp().save(tmp_path / "none" / "m.rlxg")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    for given, words in (
        (tmp_path / "none.rlxg", "no such file"),
        (tmp_path, "folder"),
        (3, "a path, bytes or an open file"),
        (io.StringIO("text"), "mode 'rb'"),
    ):
        with pytest.raises(GraphFileError, match=words):
            rlx.load(given)  # type: ignore[arg-type]
    (tmp_path / "empty.rlxg").touch()
    with (tmp_path / "empty.rlxg").open("rb") as closed:
        pass
    with pytest.raises(GraphFileError, match="closed file"):
        rlx.load(closed)
    with pytest.raises(GraphFileError, match="0 bytes"):
        rlx.load(tmp_path / "empty.rlxg")
