"""Files that break one rule each are refused, with the rule and the byte offset."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

import rlxweb as rlx
from rlxweb.core.errors import GraphFileError
from tests.unit.runtime.sample_graph_files import (
    KEY,
    first_node,
    mlp_graph,
    mlp_weights,
    pack_file,
    save_to_bytes,
    split_file,
    with_corrupt_graph,
    with_corrupt_header,
)

VALID_FILE = save_to_bytes(mlp_graph(), mlp_weights())
TENSOR_NAME = "w"
EMPTY_TENSOR = '"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'


def with_node_changes(op: str, /, **changes: Any) -> bytes:
    """Return a file whose node of an op has other entries; None removes one."""

    def change_node(graph: dict[str, Any]) -> None:
        target_node = first_node(graph, op)
        for key, value in changes.items():
            if value is None:
                del target_node[key.strip("_")]
            else:
                target_node[key.strip("_")] = value

    return with_corrupt_graph(change_node)


def with_graph_changes(**changes: Any) -> bytes:
    return with_corrupt_graph(lambda graph: graph.update(changes))


def with_attribute(op: str, name: str, value: Any) -> bytes:
    return with_corrupt_graph(
        lambda graph: first_node(graph, op)["attrs"].update({name: value})
    )


def with_tensor_changes(**changes: Any) -> bytes:
    return with_corrupt_header(lambda header: header[TENSOR_NAME].update(changes))


def single_input_file(shape: list[int], **options: Any) -> bytes:
    """Return a file with one input and the nodes that use it."""
    nodes: list[Any] = [{"op": "input", "name": "x", "dtype": "f32", "shape": shape}]
    nodes += options.get("nodes", [])
    return graph_file(
        nodes, options.get("outputs", [{"name": "y", "node": len(nodes) - 1}])
    )


def graph_file(nodes: Any, outputs: Any) -> bytes:
    text = {"format": 1, "rlxweb": "1", "name": "g", "nodes": nodes}
    graph = json.dumps({**text, "outputs": outputs})
    return pack_file(json.dumps({"__metadata__": {KEY: graph}}))


def with_header_length(raw: bytes, nbytes: int) -> bytes:
    return nbytes.to_bytes(8, "little") + raw[8:]


def overlap_tensors(header: dict[str, Any]) -> None:
    """Make two tensors overlap."""
    first, second, *_ = (k for k in header if k != "__metadata__")
    begin, end = header[second]["data_offsets"]
    size = end - begin
    header[second]["data_offsets"] = [0, size]
    assert header[first]["data_offsets"][0] == 0


def with_input_name(name: str) -> bytes:
    return with_node_changes("input", name=name)


def relu_chain(count: int) -> bytes:
    nodes: list[Any] = [{"op": "input", "name": "x", "dtype": "f32", "shape": [1]}]
    relu_node = {"op": "relu", "dtype": "f32", "shape": [1]}
    nodes += [{**relu_node, "in": [at]} for at in range(count - 1)]
    return graph_file(nodes, [{"name": "y", "node": count - 1}])


EXPAND_NODE = {"op": "expand", "in": [0], "dtype": "f32"}

MALFORMED_FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    # the layout
    "empty": (lambda: b"", "8"),
    "7 bytes": (lambda: VALID_FILE[:7], "8"),
    "header of 0 bytes": (
        lambda: with_header_length(VALID_FILE, 0),
        "declares a header of 0",
    ),
    "header past the end": (
        lambda: with_header_length(VALID_FILE, len(VALID_FILE)),
        "bytes after the header length",
    ),
    "header of 2^63 bytes": (
        lambda: with_header_length(VALID_FILE, 2**63),
        "the header must have 2 to 16,777,216 bytes",
    ),
    "header of 2^64-1 bytes": (
        lambda: with_header_length(VALID_FILE, 2**64 - 1),
        "the header must have 2 to 16,777,216 bytes",
    ),
    "header over 16 MiB": (
        lambda: pack_file(b"{}" + b" " * (16 << 20)),
        "2 to 16,777,216 bytes",
    ),
    "no JSON at all": (lambda: pack_file(b"[]"), "must begin with '{'"),
    "not UTF-8": (lambda: pack_file(b'{"\xff": 1}'), "UTF-8"),
    "broken JSON": (lambda: pack_file('{"a":}'), "JSON"),
    "half a string": (lambda: pack_file('{"a'), "JSON"),
    "a string of a million escapes without an end": (
        lambda: pack_file('{"a":' + '"' + '\\"' * 10**6 + "\\"),
        "JSON",
    ),
    "a comma too many": (lambda: pack_file('{"__metadata__":{"a":"b",}}'), "JSON"),
    "something after the header": (
        lambda: pack_file('{} "x"'),
        "after the JSON object",
    ),
    "a key of numbers": (lambda: pack_file("{1: 2}"), "key"),
    "a tensor twice": (
        lambda: pack_file("{" + ",".join([EMPTY_TENSOR] * 2) + "}"),
        "keys must be unique",
    ),
    "a key of a tensor twice": (
        lambda: pack_file('{"a":{"dtype":"F32","dtype":"F32"}}'),
        "keys must be unique",
    ),
    "metadata twice": (
        lambda: pack_file('{"__metadata__":{},"__metadata__":{}}'),
        "keys must be unique",
    ),
    "metadata is a list": (lambda: pack_file('{"__metadata__":[]}'), "expected '{'"),
    "metadata has a number": (
        lambda: pack_file('{"__metadata__":{"a":1}}'),
        "values must be strings",
    ),
    "40 brackets deep": (lambda: pack_file('{"a":' + "[" * 40 + "]" * 40 + "}"), "32"),
    "a million brackets": (lambda: pack_file('{"a":' + "[" * 10**6), "at most 32"),
    "a fraction": (
        lambda: with_tensor_changes(shape=[4.0, 3]),
        "numbers must be integers",
    ),
    "NaN": (lambda: with_tensor_changes(shape=[math.nan]), "numbers must be integers"),
    "infinity": (
        lambda: with_tensor_changes(shape=[math.inf]),
        "numbers must be integers",
    ),
    "a number of 5,000 digits": (
        lambda: pack_file('{"a":' + "9" * 5000 + "}"),
        "numbers must be from -2^63 to 2^64 - 1",
    ),
    "a tensor without a shape": (
        lambda: with_corrupt_header(lambda h: h[TENSOR_NAME].pop("shape")),
        "dtype,",
    ),
    "a tensor with more": (
        lambda: with_tensor_changes(path="/etc/passwd"),
        "the keys dtype, shape",
    ),
    "a tensor that is a number": (
        lambda: with_corrupt_header(lambda h: h.update(w=1)),
        "dtype,",
    ),
    "a type unknown": (lambda: with_tensor_changes(dtype="F8"), "has the dtype 'F8'"),
    "a type of lists": (lambda: with_tensor_changes(dtype=["F32"]), "has the dtype"),
    "rank 9": (lambda: with_tensor_changes(shape=[1] * 7 + [4, 3]), "at most 8"),
    "a dimension of -1": (
        lambda: with_tensor_changes(shape=[-4, -3]),
        "0 to 2,147,483,647",
    ),
    "a dimension of 2^63": (
        lambda: with_tensor_changes(shape=[2**63, 0]),
        "0 to 2,147,483,647",
    ),
    "a dimension of true": (
        lambda: with_tensor_changes(shape=[True, 12]),
        "integers",
    ),
    "more than 2^40 elements": (
        lambda: with_tensor_changes(shape=[2**31 - 1, 2**31 - 1]),
        "2^40",
    ),
    "a span too short": (lambda: with_tensor_changes(data_offsets=[0, 44]), "takes 48"),
    "a span too long": (lambda: with_tensor_changes(data_offsets=[0, 52]), "takes 48"),
    "a span backwards": (lambda: with_tensor_changes(data_offsets=[48, 0]), "takes 48"),
    "a span before the data": (
        lambda: with_tensor_changes(data_offsets=[-48, 0]),
        "it must begin where the previous tensor ends",
    ),
    "a span of three": (
        lambda: with_tensor_changes(data_offsets=[0, 48, 48]),
        "expected [begin, end]",
    ),
    "a span of texts": (
        lambda: with_tensor_changes(data_offsets=["0", "48"]),
        "expected [begin, end]",
    ),
    "a span past the end": (
        lambda: with_tensor_changes(data_offsets=[10**18, 10**18 + 48]),
        "it must begin where the previous tensor ends",
    ),
    "tensors over each other": (
        lambda: with_corrupt_header(overlap_tensors),
        "it must begin where the previous tensor ends",
    ),
    "a hole": (
        lambda: with_corrupt_header(lambda h: h.pop(TENSOR_NAME)),
        "it must begin where the previous tensor ends",
    ),
    "bytes after the last tensor": (lambda: VALID_FILE + b"\0", "the data has"),
    "cut in the last tensor": (lambda: VALID_FILE[:-1], "the data has"),
    "data at an odd place": (
        lambda: (
            (len(header_bytes()) + 1).to_bytes(8, "little")
            + header_bytes()
            + b" "
            + data_bytes()
        ),
        "a multiple of 8",
    ),
    "a tensor of nobody": (
        lambda: with_corrupt_header(
            lambda h: h.update(
                z={"dtype": "U8", "shape": [1], "data_offsets": span_after_data()}
            ),
            lambda d: d + b"\0",
        ),
        "is not used by any node",
    ),
    "a tensor at an odd place": (lambda: misaligned_tensor_file(), "a multiple of 4"),
    "a name of a megabyte": (
        lambda: with_corrupt_header(lambda h: h.update({"n" * 10**6: 1})),
        "1,024",
    ),
    "a name with NUL": (
        lambda: with_corrupt_header(lambda h: h.update({"a\0b": 1})),
        "printable",
    ),
    # the graph's text
    "no graph": (
        lambda: pack_file('{"__metadata__":{"format":"pt"}}'),
        "contains no graph",
    ),
    "format 0": (
        lambda: with_graph_changes(format=0),
        "the supported formats are 1 and 2",
    ),
    "format 3": (
        lambda: with_graph_changes(format=3),
        "the supported formats are 1 and 2",
    ),
    "format true": (
        lambda: with_graph_changes(format=True),
        "the supported formats are 1 and 2",
    ),
    "no format": (
        lambda: with_corrupt_graph(lambda g: g.pop("format")),
        "in this order",
    ),
    "a key more": (lambda: with_graph_changes(code="import os"), "in this order"),
    "no outputs key": (
        lambda: with_corrupt_graph(lambda g: g.pop("outputs")),
        "no key 'outputs'",
    ),
    "no outputs": (lambda: with_graph_changes(outputs=[]), "no outputs"),
    "two outputs of one name": (
        lambda: with_graph_changes(outputs=[{"name": "y", "node": 1}] * 2),
        "two outputs",
    ),
    "an output of nothing": (
        lambda: with_graph_changes(outputs=[{"name": "y", "node": 99}]),
        "14 nodes, numbered from 0",
    ),
    "an output of -1": (
        lambda: with_graph_changes(outputs=[{"name": "y", "node": -1}]),
        "14 nodes, numbered from 0",
    ),
    "an output of true": (
        lambda: with_graph_changes(outputs=[{"name": "y", "node": True}]),
        "14 nodes, numbered from 0",
    ),
    "an output of a list": (
        lambda: with_graph_changes(outputs=[[1]]),
        "the keys 'name' and 'node'",
    ),
    "a graph twice as deep": (
        lambda: with_graph_changes(nodes=[json.loads("[" * 29 + "]" * 29)]),
        "op",
    ),
    "a graph too deep": (
        lambda: with_corrupt_graph(edit_text=lambda t: t.replace("[", "[" * 40, 1)),
        "at most 32",
    ),
    "a key of the graph twice": (
        lambda: with_corrupt_graph(
            edit_text=lambda t: t.replace('"op"', '"op":"a","op"', 1)
        ),
        "keys must be unique",
    ),
    "NaN in the graph": (
        lambda: with_corrupt_graph(
            edit_text=lambda t: t.replace("[2, 4]", "[NaN, 4]", 1)
        ),
        "numbers must be integers",
    ),
    "a node that is a number": (
        lambda: with_graph_changes(nodes=[1]),
        "an object with a string under the key 'op'",
    ),
    "an op unknown": (
        lambda: with_node_changes("relu", op="rely"),
        "did you mean 'relu'",
    ),
    "an op by its second name": (lambda: op_alias_file(), "names its op by an alias"),
    "an attribute unknown": (
        lambda: with_attribute("softmax", "axes", 1),
        "expected axis",
    ),
    "an attribute missing": (
        lambda: with_node_changes("softmax", attrs={}),
        "expected axis",
    ),
    "an attribute of text": (
        lambda: with_attribute("softmax", "axis", "1"),
        "expected a 64-bit integer",
    ),
    "an attribute of true": (
        lambda: with_attribute("softmax", "axis", True),
        "expected a 64-bit integer",
    ),
    "an attribute of 2^63": (
        lambda: with_attribute("softmax", "axis", 2**63),
        "expected a 64-bit integer",
    ),
    "an axis of 9": (
        lambda: with_attribute("softmax", "axis", 9),
        "out of range for rank",
    ),
    "a float of digits": (
        lambda: with_attribute("layer_norm", "eps", "0.1"),
        "expected a float",
    ),
    "a float too large": (
        lambda: with_attribute("layer_norm", "eps", "0x1.0p+9999"),
        "a number must fit into a 64-bit float",
    ),
    "a float of words": (
        lambda: with_attribute("layer_norm", "eps", "exec"),
        "expected a float",
    ),
    "a type attribute unknown": (
        lambda: with_attribute("cast", "to", "q4"),
        "expected one of",
    ),
    "ints of null": (
        lambda: with_attribute("sum", "axes", [None]),
        "expected a list of 64-bit integers",
    ),
    "ints of millions": (
        lambda: with_attribute("sum", "axes", [0] * 65_537),
        "at most 65,536",
    ),
    "attributes of a list": (
        lambda: with_node_changes("softmax", attrs=[1]),
        "expected axis",
    ),
    "a node reads itself": (
        lambda: with_node_changes("matmul", in_=[0, 2]),
        "nodes before it",
    ),
    "a node reads ahead": (
        lambda: with_node_changes("matmul", in_=[0, 5]),
        "nodes before it",
    ),
    "a node reads nothing": (
        lambda: with_node_changes("matmul", in_=[0, -1]),
        "nodes before it",
    ),
    "a node reads null": (
        lambda: with_node_changes("matmul", in_=[None, 1]),
        "nodes before it",
    ),
    "a node reads text": (lambda: with_node_changes("matmul", in_="01"), "a list of"),
    "an operand too few": (
        lambda: with_node_changes("matmul", in_=[0]),
        "expected 2 inputs",
    ),
    "100,000 operands of a sum": (
        lambda: with_node_changes("relu", in_=[0] * 10**5),
        "expected 1",
    ),
    "another shape": (
        lambda: with_node_changes("matmul", shape=[3, 2]),
        "the op produces [2, 3] f32",
    ),
    "another type": (
        lambda: with_node_changes("matmul", dtype="f16"),
        "the op produces [2, 3] f32",
    ),
    "no shape": (lambda: with_node_changes("matmul", shape=None), "integers"),
    "no type": (lambda: with_node_changes("matmul", dtype=None), "has the dtype None"),
    "a word unknown": (
        lambda: with_node_changes("matmul", path="../a"),
        "allowed: attrs",
    ),
    "an input with data": (
        lambda: with_node_changes("input", data="00"),
        "allowed: dtype",
    ),
    "two inputs of one name": (
        lambda: with_node_changes("param", name="x"),
        "already used",
    ),
    "an input of no name": (
        lambda: with_node_changes("input", name=""),
        "the name must be a non-empty string",
    ),
    "an input called 1": (
        lambda: with_node_changes("input", name=1),
        "expected a string",
    ),
    "a name with a line break": (
        lambda: with_input_name("a\nb"),
        "only printable characters",
    ),
    "a name that turns letters round": (
        lambda: with_input_name("a\u202eb"),
        "only printable characters",
    ),
    "a name of 1 MB": (lambda: with_input_name("x" * 10**6), "at most 1,024"),
    "a tensor that is not there": (
        lambda: with_node_changes("param", tensor="v"),
        "the file has no tensor of this name",
    ),
    "a tensor of a path": (
        lambda: with_node_changes("param", tensor="../w"),
        "the file has no tensor of this name",
    ),
    "a tensor of a list": (
        lambda: with_node_changes("param", tensor=["w"]),
        "the file has no tensor of this name",
    ),
    "one tensor for two": (
        lambda: shared_tensor_file(),
        "another node already uses this tensor",
    ),
    "a tensor of another shape": (
        lambda: with_node_changes("param", shape=[3, 4]),
        "its tensor",
    ),
    "a tensor of another type": (
        lambda: with_node_changes("param", dtype="i32"),
        "its tensor",
    ),
    "a constant of nothing": (
        lambda: with_node_changes("constant", data=None),
        "neither 'tensor' nor 'data'",
    ),
    "a constant of odd digits": (
        lambda: with_node_changes("constant", data="000"),
        "two lower-case hexadecimal digits",
    ),
    "a constant cut short": (
        lambda: with_node_changes("constant", data="00" * 11),
        "takes 12 bytes",
    ),
    "a constant of letters": (
        lambda: with_node_changes("constant", data="zz" * 12),
        "two lower-case hexadecimal digits",
    ),
    "a constant of capitals": (
        lambda: with_node_changes("constant", data="AA" * 12),
        "two lower-case hexadecimal digits",
    ),
    "a constant too long": (
        lambda: with_node_changes("constant", data="00" * 65),
        "at most 64",
    ),
    "a constant of exabytes": (
        lambda: with_node_changes("constant", shape=[2**20, 2**20]),
        "takes 4398046511104",
    ),
    "a bool of 2": (
        lambda: graph_file(
            [{"op": "constant", "dtype": "bool", "shape": [1], "data": "02"}],
            [{"name": "y", "node": 0}],
        ),
        "0 or 1",
    ),
    "an input of 2^41 elements": (lambda: single_input_file([2**21, 2**20]), "2^40"),
    "an input of rank 9": (lambda: single_input_file([1] * 9), "at most 8"),
    "a broadcast bomb": (
        lambda: single_input_file(
            [1],
            nodes=[{**EXPAND_NODE, "attrs": {"shape": [2**31] * 8}, "shape": [2**30]}],
        ),
        "the op produces [2147483648",
    ),
    "100,001 nodes": (lambda: relu_chain(100_001), "at most 100,000"),
}


def header_bytes() -> bytes:
    """Return the header, which ends at a multiple of 8."""
    nbytes = int.from_bytes(VALID_FILE[:8], "little")
    return VALID_FILE[8 : 8 + nbytes]


def data_bytes() -> bytes:
    return split_file(VALID_FILE)[2]


def span_after_data() -> list[int]:
    return [len(data_bytes()), len(data_bytes()) + 1]


def misaligned_tensor_file() -> bytes:
    """Return a file with a tensor of one byte before one of four."""
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
    return pack_file(json.dumps(header), bytes(5))


def shared_tensor_file() -> bytes:
    def add_second_param(graph: dict[str, Any]) -> None:
        other = {**first_node(graph, "param"), "name": "v"}
        graph["nodes"].append(other)

    return with_corrupt_graph(add_second_param)


def op_alias_file() -> bytes:
    from rlxweb.ir.op import registry

    op = next(o for o in registry if o.aliases)
    return with_node_changes("relu", op=op.aliases[0])


@pytest.mark.full("100,001 nodes")  # seconds; test_varying has the same check of few
@pytest.mark.parametrize("name", MALFORMED_FILES)
def test_a_file_that_breaks_one_rule_is_refused(name: str) -> None:
    """A broken rule is reported in words and with the byte offset in the file."""
    build_file, message = MALFORMED_FILES[name]
    raw = build_file()
    with pytest.raises(GraphFileError) as caught:
        rlx.load(raw)
    error = caught.value
    assert message in str(error)
    assert error.rule, "a rule is named"
    assert error.offset is not None
    assert 0 <= error.offset <= len(raw)
    assert len(str(error)) < 4000


def test_dozens_of_rules_are_covered() -> None:
    assert len(MALFORMED_FILES) >= 60


def test_the_offset_is_that_of_the_fault() -> None:
    """A fault in the header's text is reported with its byte offset, escapes
    counted.
    """
    raw = with_node_changes("relu", op="rely")
    with pytest.raises(GraphFileError) as caught:
        rlx.load(raw)
    offset = caught.value.offset
    assert offset is not None
    assert raw[offset:].startswith(b'{\\"op\\": \\"rely\\"')


def test_a_claimed_size_allocates_no_memory() -> None:
    """A 300-byte file that claims exabytes is refused without allocating them."""
    raw = with_node_changes("constant", shape=[2**20, 2**20])
    tracemalloc.start()
    with pytest.raises(GraphFileError):
        rlx.load(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_duplicate_key_is_found_among_many() -> None:
    keys = ",".join(f'"{at}":0' for at in range(10**5))
    raw = pack_file(f'{{"a":{{{keys},"x":0,"x":0}}}}')
    with pytest.raises(GraphFileError, match="'x' occurs twice"):
        rlx.load_weights(mlp_graph(), raw)


def test_a_budget_is_enforced() -> None:
    nan = {"nbytes": math.nan}
    needs = {"nodes": len(mlp_graph()), "nbytes": 10_000, "flops": 10_000}
    rlx.load(VALID_FILE, budget=needs)
    for name in needs:
        with pytest.raises(GraphFileError, match=r"budget|at most"):
            rlx.load(VALID_FILE, budget={name: 7})
    for bad_budget in ({"node": 1}, {"nodes": -1}, {"nodes": "1"}, nan, [1]):
        with pytest.raises(rlx.RlxError, match="budget"):
            rlx.load(VALID_FILE, budget=bad_budget)  # type: ignore[arg-type]
