"""Stub file of the Graph methods that op records declare.

`python -m tests.graph_method_stub` writes `rlxweb/ir/graph_methods.pyi`, by which
editors and type checkers know the methods; a test compares the file with the records.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from inspect import Parameter
from textwrap import wrap

from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, registry
from tests.cli_runners import ROOT

STUB_FILE = ROOT / "rlxweb" / "ir" / "graph_methods.pyi"
_HEADER = '''"""Methods of Graph that op records declare, for editors and type checkers.

Written from the records by `python -m tests.graph_method_stub`.
"""

from rlxweb.ir.op_methods import LoadsOpMethods
from rlxweb.ir.tensor import Operand, Tensor

class GraphMethods(metaclass=LoadsOpMethods):
    _op_methods: frozenset[str]
'''


def stub_text() -> str:
    """Return the stub as the records have it."""
    Graph.load_op_methods()
    return _HEADER + "".join(
        line
        for name in sorted(Graph._op_methods)
        for line in _method_lines(registry.get(name))
    )


def _method_lines(op: Op) -> Iterator[str]:
    """Yield the lines of one method: its signature, its doc and where it comes from."""
    parameters = [
        _parameter_text(parameter)
        for parameter in inspect.signature(getattr(Graph, op.name)).parameters.values()
    ]
    head = f"    def {op.name}({', '.join(parameters)}) -> Tensor:\n"
    yield head
    doc = wrap(f'"""{op.doc}', 80) or ['"""']
    if len(doc[-1]) <= 77 and len(doc) == 1:
        yield f'        {doc[0]}"""\n'
        return
    yield from (f"        {line}\n" for line in doc)
    yield '        """\n'


def _parameter_text(parameter: Parameter) -> str:
    if parameter.name == "self":
        return "self"
    default = "" if parameter.default is parameter.empty else f" = {parameter.default}"
    return f"{parameter.name}: {parameter.annotation}{default}"


if __name__ == "__main__":
    STUB_FILE.write_text(stub_text(), encoding="utf-8")
