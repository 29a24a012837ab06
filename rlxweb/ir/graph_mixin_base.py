"""Abstract base of the mix-ins of Graph: the methods that they call on each other."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from rlxweb.ir.dtype import DType, DTypeLike
from rlxweb.ir.graph_methods import GraphMethods
from rlxweb.ir.tensor import Tensor


class OpBuilder(GraphMethods):
    """Abstract methods that one mix-in of Graph calls and another part of Graph
    defines.
    """

    @abstractmethod
    def apply(
        self, op_name: str, *inputs: Tensor, name: str = "", **attrs: Any
    ) -> Tensor:
        """Add a node; see Graph.apply."""

    @abstractmethod
    def constant(self, value: Any, dtype: DTypeLike | None = None) -> Tensor:
        """Add an array; see Graph.constant."""

    @abstractmethod
    def node(self, at: int) -> Any:
        """Return a node by its id; see Graph.node."""

    @abstractmethod
    def operand(self, value: Any, dtype: DType) -> Tensor:
        """Turn a value into a tensor of the graph; see Graph.operand."""

    @abstractmethod
    def _pair(self, x: Any, y: Any) -> tuple[Tensor, Tensor]:
        """Turn two operands into tensors of the graph."""
