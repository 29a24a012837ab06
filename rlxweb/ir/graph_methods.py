"""Base of Graph that has the methods of op records.

`graph_methods.pyi` lists them for editors and type checkers; it is written from the
records by `python -m tests.graph_method_stub`.
"""

from __future__ import annotations

from rlxweb.ir.op_methods import LoadsOpMethods


class GraphMethods(metaclass=LoadsOpMethods):
    """Methods of Graph that add one op each."""

    _op_methods: frozenset[str] = frozenset()
    """Names of the methods, once they are loaded."""
