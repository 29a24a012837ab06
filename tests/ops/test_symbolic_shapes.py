"""Test that a graph with symbolic sizes, once bound, equals one built with numbers."""

from __future__ import annotations

from rlxweb import Dim, Graph
from rlxweb.core.errors import RlxError
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample

OPS = [op for op in registry if op.samples and not op.has_trait("leaf")]


def sample_graph(op: Op, sample: Sample, *, varies: bool) -> Graph:
    """Build the op of a sample; if `varies`, the first axis of each operand is
    symbolic.
    """
    g = Graph(op.name)
    operands = []
    for index, operand in enumerate(sample.inputs):
        shape = list(operand.shape)
        if varies and shape:
            shape[0] = Dim(f"n{shape[0]}", min=shape[0])
        operands.append(g.input(f"x{index}", shape, operand.dtype))
    g.set_outputs([g.apply(op.name, *operands, **sample.attrs)])
    return g


def test_bound_graph_equals_static_graph() -> None:
    """Symbolic axes may be longer than the sample's, where the op's rule allows it."""
    bound_count = 0
    for op in OPS:
        sample = op.samples[0]
        try:
            graph = sample_graph(op, sample, varies=True)
        except RlxError:  # its rule, or its attributes, know these sizes alone
            continue
        sizes = {name: int(name[1:]) for name in graph.dims}
        static_graph = sample_graph(op, sample, varies=False)
        assert graph.bind(sizes).key == static_graph.key, op.name
        bound_count += bool(sizes)
    assert bound_count > len(OPS) // 2
