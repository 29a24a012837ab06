"""Every op in a graph whose sizes vary is, bound, the node that numbers make."""

from __future__ import annotations

from rlxweb import Dim, Graph
from rlxweb.errors import RlxError
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample

OPS = [op for op in registry if op.samples and not op.has("leaf")]


def built(op: Op, sample: Sample, *, varies: bool) -> Graph:
    """The op of a sample; where sizes vary, the first axis of each operand does."""
    g = Graph(op.name)
    operands = []
    for at, one in enumerate(sample.inputs):
        shape = list(one.shape)
        if varies and shape:
            shape[0] = Dim(f"n{shape[0]}", min=shape[0])
        operands.append(g.input(f"x{at}", shape, one.dtype))
    g.set_outputs([g.apply(op.name, *operands, **sample.attrs)])
    return g


def test_every_op_is_bound_to_what_numbers_make() -> None:
    """Tried with longer axes than the sample's, where its rule takes them."""
    varied = 0
    for op in OPS:
        sample = op.samples[0]
        try:
            graph = built(op, sample, varies=True)
        except RlxError:  # its rule, or its attributes, know these sizes alone
            continue
        sizes = {name: int(name[1:]) for name in graph.dims}
        fixed = built(op, sample, varies=False)
        assert graph.bind(sizes).key == fixed.key, op.name
        varied += bool(sizes)
    assert varied > len(OPS) // 2
