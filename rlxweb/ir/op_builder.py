"""The base of the mix-ins of Graph: methods that they call of each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from rlxweb.ir.dtype import DType, DTypeLike
from rlxweb.ir.tensor import Tensor


class OpBuilder(ABC):
    """Methods that a mix-in of Graph calls and another part of Graph defines."""

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
        """See Graph.node."""

    @abstractmethod
    def operand(self, value: Any, dtype: DType) -> Tensor:
        """See Builder.operand."""

    @abstractmethod
    def _pair(self, x: Any, y: Any) -> tuple[Tensor, Tensor]:
        """See Builder."""

    @abstractmethod
    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        """See Builder.where."""

    @abstractmethod
    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """See Builder."""

    @abstractmethod
    def norm(
        self, x: Tensor, p: float = 2.0, axes: Any = None, keep_dim: bool = False
    ) -> Tensor:
        """See ReduceBuilder.norm."""

    @abstractmethod
    def count_nonzero(self, x: Tensor) -> Tensor:
        """See ReduceBuilder.count_nonzero."""
