"""Files that break one rule each are refused, with the rule and the byte."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

import rlxweb as rlx
from rlxweb.errors import GraphFileError
from tests.unit.graphfile.files import (
    KEY,
    mlp,
    node,
    packed,
    parts,
    relaid,
    saved,
    spoiled,
    weights,
)

GOOD = saved(mlp(), weights())
W = "w"
NOTHING = '"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'


def put(op: str, /, **changes: Any) -> bytes:
    """A node of the graph with other words; None takes one away."""

    def spoil(graph: dict[str, Any]) -> None:
        found = node(graph, op)
        for key, value in changes.items():
            if value is None:
                del found[key.strip("_")]
            else:
                found[key.strip("_")] = value

    return spoiled(spoil)


def top(**changes: Any) -> bytes:
    return spoiled(lambda graph: graph.update(changes))


def attr(op: str, name: str, value: Any) -> bytes:
    return spoiled(lambda graph: node(graph, op)["attrs"].update({name: value}))


def entry(**changes: Any) -> bytes:
    return relaid(lambda header: header[W].update(changes))


def leaf(shape: list[int], **more: Any) -> bytes:
    """A file of one input and what is done to it."""
    nodes: list[Any] = [{"op": "input", "name": "x", "dtype": "f32", "shape": shape}]
    nodes += more.get("nodes", [])
    return whole(nodes, more.get("outputs", [{"name": "y", "node": len(nodes) - 1}]))


def whole(nodes: Any, outputs: Any) -> bytes:
    text = {"format": 1, "rlxweb": "1", "name": "g", "nodes": nodes}
    graph = json.dumps({**text, "outputs": outputs})
    return packed(json.dumps({"__metadata__": {KEY: graph}}))


def lengthened(raw: bytes, nbytes: int) -> bytes:
    return nbytes.to_bytes(8, "little") + raw[8:]


def moved(header: dict[str, Any]) -> None:
    """Two tensors over each other."""
    first, second, *_ = (k for k in header if k != "__metadata__")
    begin, end = header[second]["data_offsets"]
    size = end - begin
    header[second]["data_offsets"] = [0, size]
    assert header[first]["data_offsets"][0] == 0


def named(name: str) -> bytes:
    return put("input", name=name)


def chain(count: int) -> bytes:
    nodes: list[Any] = [{"op": "input", "name": "x", "dtype": "f32", "shape": [1]}]
    like = {"op": "relu", "dtype": "f32", "shape": [1]}
    nodes += [{**like, "in": [at]} for at in range(count - 1)]
    return whole(nodes, [{"name": "y", "node": count - 1}])


EXPAND = {"op": "expand", "in": [0], "dtype": "f32"}

BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    # the layout
    "empty": (lambda: b"", "8"),
    "7 bytes": (lambda: GOOD[:7], "8"),
    "header of 0 bytes": (lambda: lengthened(GOOD, 0), "header is said to have 0"),
    "header past the end": (lambda: lengthened(GOOD, len(GOOD)), "are there"),
    "header of 2^63 bytes": (lambda: lengthened(GOOD, 2**63), "are allowed"),
    "header of 2^64-1 bytes": (lambda: lengthened(GOOD, 2**64 - 1), "are allowed"),
    "header over 16 MiB": (
        lambda: packed(b"{}" + b" " * (16 << 20)),
        "2 to 16,777,216 are allowed",
    ),
    "no JSON at all": (lambda: packed(b"[]"), "begins with '{'"),
    "not UTF-8": (lambda: packed(b'{"\xff": 1}'), "UTF-8"),
    "broken JSON": (lambda: packed('{"a":}'), "JSON"),
    "half a string": (lambda: packed('{"a'), "JSON"),
    "a string of a million escapes without an end": (
        lambda: packed('{"a":' + '"' + '\\"' * 10**6 + "\\"),
        "JSON",
    ),
    "a comma too many": (lambda: packed('{"__metadata__":{"a":"b",}}'), "JSON"),
    "something after the header": (lambda: packed('{} "x"'), "after its end"),
    "a key of numbers": (lambda: packed("{1: 2}"), "key"),
    "a tensor twice": (
        lambda: packed("{" + ",".join([NOTHING] * 2) + "}"),
        "each key once",
    ),
    "a key of a tensor twice": (
        lambda: packed('{"a":{"dtype":"F32","dtype":"F32"}}'),
        "each key once",
    ),
    "metadata twice": (
        lambda: packed('{"__metadata__":{},"__metadata__":{}}'),
        "each key once",
    ),
    "metadata is a list": (lambda: packed('{"__metadata__":[]}'), "wanted"),
    "metadata has a number": (lambda: packed('{"__metadata__":{"a":1}}'), "texts"),
    "40 brackets deep": (lambda: packed('{"a":' + "[" * 40 + "]" * 40 + "}"), "32"),
    "a million brackets": (lambda: packed('{"a":' + "[" * 10**6), "at most 32"),
    "a fraction": (lambda: entry(shape=[4.0, 3]), "numbers are whole"),
    "NaN": (lambda: entry(shape=[math.nan]), "numbers are whole"),
    "infinity": (lambda: entry(shape=[math.inf]), "numbers are whole"),
    "a number of 5,000 digits": (
        lambda: packed('{"a":' + "9" * 5000 + "}"),
        "numbers lie between",
    ),
    "a tensor without a shape": (lambda: relaid(lambda h: h[W].pop("shape")), "dtype,"),
    "a tensor with more": (lambda: entry(path="/etc/passwd"), "dtype, shape,"),
    "a tensor that is a number": (lambda: relaid(lambda h: h.update(w=1)), "dtype,"),
    "a type unknown": (lambda: entry(dtype="F8"), "is of type 'F8'"),
    "a type of lists": (lambda: entry(dtype=["F32"]), "is of type"),
    "rank 9": (lambda: entry(shape=[1] * 7 + [4, 3]), "at most 8"),
    "a dimension of -1": (lambda: entry(shape=[-4, -3]), "0 to 2,147,483,647"),
    "a dimension of 2^63": (lambda: entry(shape=[2**63, 0]), "0 to 2,147,483,647"),
    "a dimension of true": (lambda: entry(shape=[True, 12]), "whole numbers"),
    "more than 2^40 elements": (lambda: entry(shape=[2**31 - 1, 2**31 - 1]), "2^40"),
    "a span too short": (lambda: entry(data_offsets=[0, 44]), "takes 48"),
    "a span too long": (lambda: entry(data_offsets=[0, 52]), "takes 48"),
    "a span backwards": (lambda: entry(data_offsets=[48, 0]), "takes 48"),
    "a span before the data": (lambda: entry(data_offsets=[-48, 0]), "no gap"),
    "a span of three": (lambda: entry(data_offsets=[0, 48, 48]), "[from, to]"),
    "a span of texts": (lambda: entry(data_offsets=["0", "48"]), "[from, to]"),
    "a span past the end": (
        lambda: entry(data_offsets=[10**18, 10**18 + 48]),
        "no gap",
    ),
    "tensors over each other": (lambda: relaid(moved), "overlap"),
    "a hole": (
        lambda: relaid(lambda h: h.pop(W)),
        "no gap",
    ),
    "bytes after the last tensor": (lambda: GOOD + b"\0", "there are"),
    "cut in the last tensor": (lambda: GOOD[:-1], "there are"),
    "data at an odd place": (
        lambda: (
            (len(parts_raw()) + 1).to_bytes(8, "little") + parts_raw() + b" " + data()
        ),
        "a multiple of 8",
    ),
    "a tensor of nobody": (
        lambda: relaid(
            lambda h: h.update(
                z={"dtype": "U8", "shape": [1], "data_offsets": at_end()}
            ),
            lambda d: d + b"\0",
        ),
        "belongs to no node",
    ),
    "a tensor at an odd place": (lambda: odd(), "a multiple of 4"),
    "a name of a megabyte": (
        lambda: relaid(lambda h: h.update({"n" * 10**6: 1})),
        "1,024",
    ),
    "a name with NUL": (lambda: relaid(lambda h: h.update({"a\0b": 1})), "printed"),
    # the graph's text
    "no graph": (lambda: packed('{"__metadata__":{"format":"pt"}}'), "holds no graph"),
    "format 0": (lambda: top(format=0), "reads formats 1 and 2"),
    "format 3": (lambda: top(format=3), "reads formats 1 and 2"),
    "format true": (lambda: top(format=True), "reads formats 1 and 2"),
    "no format": (lambda: spoiled(lambda g: g.pop("format")), "in this order"),
    "a key more": (lambda: top(code="import os"), "in this order"),
    "no outputs key": (lambda: spoiled(lambda g: g.pop("outputs")), "no 'outputs'"),
    "no outputs": (lambda: top(outputs=[]), "no outputs"),
    "two outputs of one name": (
        lambda: top(outputs=[{"name": "y", "node": 1}] * 2),
        "two outputs",
    ),
    "an output of nothing": (lambda: top(outputs=[{"name": "y", "node": 99}]), "0 to"),
    "an output of -1": (lambda: top(outputs=[{"name": "y", "node": -1}]), "0 to"),
    "an output of true": (lambda: top(outputs=[{"name": "y", "node": True}]), "0 to"),
    "an output of a list": (lambda: top(outputs=[[1]]), "a name and a node"),
    "a graph twice as deep": (
        lambda: top(nodes=[json.loads("[" * 29 + "]" * 29)]),
        "op",
    ),
    "a graph too deep": (
        lambda: spoiled(text=lambda t: t.replace("[", "[" * 40, 1)),
        "at most 32",
    ),
    "a key of the graph twice": (
        lambda: spoiled(text=lambda t: t.replace('"op"', '"op":"a","op"', 1)),
        "each key once",
    ),
    "NaN in the graph": (
        lambda: spoiled(text=lambda t: t.replace("[2, 4]", "[NaN, 4]", 1)),
        "numbers are whole",
    ),
    "a node that is a number": (lambda: top(nodes=[1]), "an object with an 'op'"),
    "an op unknown": (lambda: put("relu", op="rely"), "did you mean 'relu'"),
    "an op by its second name": (lambda: second_name(), "second name"),
    "an attribute unknown": (lambda: attr("softmax", "axes", 1), "it has axis"),
    "an attribute missing": (lambda: put("softmax", attrs={}), "it has axis"),
    "an attribute of text": (lambda: attr("softmax", "axis", "1"), "it is of int"),
    "an attribute of true": (lambda: attr("softmax", "axis", True), "it is of int"),
    "an attribute of 2^63": (lambda: attr("softmax", "axis", 2**63), "it is of int"),
    "an axis of 9": (lambda: attr("softmax", "axis", 9), "outside rank"),
    "a float of digits": (lambda: attr("layer_norm", "eps", "0.1"), "it is of float"),
    "a float too large": (
        lambda: attr("layer_norm", "eps", "0x1.0p+9999"),
        "a float of 64 bits",
    ),
    "a float of words": (lambda: attr("layer_norm", "eps", "exec"), "it is of float"),
    "a type attribute unknown": (lambda: attr("cast", "to", "q4"), "it is of dtype"),
    "ints of null": (lambda: attr("sum", "axes", [None]), "it is of ints"),
    "ints of millions": (lambda: attr("sum", "axes", [0] * 65_537), "at most 65,536"),
    "attributes of a list": (lambda: put("softmax", attrs=[1]), "it has axis"),
    "a node reads itself": (lambda: put("matmul", in_=[0, 2]), "those before it"),
    "a node reads ahead": (lambda: put("matmul", in_=[0, 5]), "those before it"),
    "a node reads nothing": (lambda: put("matmul", in_=[0, -1]), "those before it"),
    "a node reads null": (lambda: put("matmul", in_=[None, 1]), "those before it"),
    "a node reads text": (lambda: put("matmul", in_="01"), "a list of"),
    "an operand too few": (lambda: put("matmul", in_=[0]), "takes 2 inputs"),
    "100,000 operands of a sum": (lambda: put("relu", in_=[0] * 10**5), "takes 1"),
    "another shape": (lambda: put("matmul", shape=[3, 2]), "it is [2, 3] f32"),
    "another type": (lambda: put("matmul", dtype="f16"), "it is [2, 3] f32"),
    "no shape": (lambda: put("matmul", shape=None), "whole numbers"),
    "no type": (lambda: put("matmul", dtype=None), "is of type None"),
    "a word unknown": (lambda: put("matmul", path="../a"), "allowed: attrs"),
    "an input with data": (lambda: put("input", data="00"), "allowed: dtype"),
    "two inputs of one name": (lambda: put("param", name="x"), "taken"),
    "an input of no name": (lambda: put("input", name=""), "a name is needed"),
    "an input called 1": (lambda: put("input", name=1), "a text is wanted"),
    "a name with a line break": (lambda: named("a\nb"), "can be printed"),
    "a name that turns letters round": (lambda: named("a\u202eb"), "can be printed"),
    "a name of 1 MB": (lambda: named("x" * 10**6), "at most 1,024"),
    "a tensor that is not there": (lambda: put("param", tensor="v"), "has none"),
    "a tensor of a path": (lambda: put("param", tensor="../w"), "has none"),
    "a tensor of a list": (lambda: put("param", tensor=["w"]), "has none"),
    "one tensor for two": (lambda: twice(), "another node has it"),
    "a tensor of another shape": (lambda: put("param", shape=[3, 4]), "its tensor"),
    "a tensor of another type": (lambda: put("param", dtype="i32"), "its tensor"),
    "a constant of nothing": (lambda: put("constant", data=None), "'tensor' or 'data'"),
    "a constant of odd digits": (lambda: put("constant", data="000"), "two digits"),
    "a constant cut short": (lambda: put("constant", data="00" * 11), "takes 12 bytes"),
    "a constant of letters": (lambda: put("constant", data="zz" * 12), "two digits"),
    "a constant of capitals": (lambda: put("constant", data="AA" * 12), "two digits"),
    "a constant too long": (lambda: put("constant", data="00" * 65), "at most 64"),
    "a constant of exabytes": (
        lambda: put("constant", shape=[2**20, 2**20]),
        "takes 4398046511104",
    ),
    "a bool of 2": (
        lambda: whole(
            [{"op": "constant", "dtype": "bool", "shape": [1], "data": "02"}],
            [{"name": "y", "node": 0}],
        ),
        "0 or 1",
    ),
    "an input of 2^41 elements": (lambda: leaf([2**21, 2**20]), "2^40"),
    "an input of rank 9": (lambda: leaf([1] * 9), "at most 8"),
    "a broadcast bomb": (
        lambda: leaf(
            [1],
            nodes=[{**EXPAND, "attrs": {"shape": [2**31] * 8}, "shape": [2**30]}],
        ),
        "it is [2147483648",
    ),
    "100,001 nodes": (lambda: chain(100_001), "at most 100,000"),
}


def parts_raw() -> bytes:
    """A header whose end is at a multiple of 8."""
    nbytes = int.from_bytes(GOOD[:8], "little")
    return GOOD[8 : 8 + nbytes]


def data() -> bytes:
    return parts(GOOD)[2]


def at_end() -> list[int]:
    return [len(data()), len(data()) + 1]


def odd() -> bytes:
    """A tensor of one byte before one of four."""
    text = {"format": 1, "rlxweb": "1", "name": "g"}
    nodes = [
        {"op": "param", "name": "a", "dtype": "bool", "shape": [1], "tensor": "a"},
        {"op": "param", "name": "b", "dtype": "f32", "shape": [1], "tensor": "b"},
    ]
    graph = {**text, "nodes": nodes, "outputs": [{"name": "y", "node": 1}]}
    header = {
        "__metadata__": {KEY: json.dumps(graph)},
        "a": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]},
        "b": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]},
    }
    return packed(json.dumps(header), bytes(5))


def twice() -> bytes:
    def spoil(graph: dict[str, Any]) -> None:
        other = {**node(graph, "param"), "name": "v"}
        graph["nodes"].append(other)

    return spoiled(spoil)


def second_name() -> bytes:
    from rlxweb.ir.op import registry

    op = next(o for o in registry if o.aliases)
    return put("relu", op=op.aliases[0])


@pytest.mark.full("100,001 nodes")  # seconds; test_varying has the same check of few
@pytest.mark.parametrize("name", BAD)
def test_a_file_that_breaks_one_rule_is_refused(name: str) -> None:
    """A broken rule is told in words and with the byte of the file."""
    make, words = BAD[name]
    raw = make()
    with pytest.raises(GraphFileError) as caught:
        rlx.load(raw)
    error = caught.value
    assert words in str(error)
    assert error.rule, "a rule is named"
    assert error.offset is not None
    assert 0 <= error.offset <= len(raw)
    assert len(str(error)) < 4000


def test_they_break_dozens_of_rules() -> None:
    assert len(BAD) >= 60


def test_the_byte_is_where_the_fault_is() -> None:
    """A fault in the header's text is told with its byte there, escapes counted."""
    raw = put("relu", op="rely")
    with pytest.raises(GraphFileError) as caught:
        rlx.load(raw)
    offset = caught.value.offset
    assert offset is not None
    assert raw[offset:].startswith(b'{\\"op\\": \\"rely\\"')


def test_a_claim_costs_no_memory() -> None:
    """A file that speaks of exabytes is refused for what it is: 300 bytes."""
    raw = put("constant", shape=[2**20, 2**20])
    tracemalloc.start()
    with pytest.raises(GraphFileError):
        rlx.load(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_key_that_stands_twice_is_found_among_many() -> None:
    keys = ",".join(f'"{at}":0' for at in range(10**5))
    raw = packed(f'{{"a":{{{keys},"x":0,"x":0}}}}')
    with pytest.raises(GraphFileError, match="'x' stands twice"):
        rlx.load_weights(mlp(), raw)


def test_a_budget_is_kept() -> None:
    nan = {"nbytes": math.nan}
    needs = {"nodes": len(mlp()), "nbytes": 10_000, "flops": 10_000}
    rlx.load(GOOD, budget=needs)
    for name in needs:
        with pytest.raises(GraphFileError, match=r"budget|at most"):
            rlx.load(GOOD, budget={name: 7})
    for wrong in ({"node": 1}, {"nodes": -1}, {"nodes": "1"}, nan, [1]):
        with pytest.raises(rlx.RlxError, match="budget"):
            rlx.load(GOOD, budget=wrong)  # type: ignore[arg-type]
