"""Graph methods that add derivatives and batched versions of computations to the same
graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from rlxweb.core.errors import ShapeError
from rlxweb.ir.autodiff import compute_jvp, compute_vjp
from rlxweb.ir.graph_mixin_base import OpBuilder
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.ir.tensor import Tensor, as_tensor_tuple, op_context
from rlxweb.ir.vmap_batching import vectorize


class DerivativeBuilder(OpBuilder):
    """Graph methods for derivatives and batching; mixed into Graph."""

    def stop_gradient(self, x: Tensor) -> Tensor:
        """Return x, treated as a constant by derivatives."""
        with op_context("stop_gradient", x):
            return self.apply("stop_gradient", x)

    def identity(self, x: Tensor) -> Tensor:
        """Return x as a new value, to differentiate by its uses from here on and not by
        earlier uses of x.
        """
        with op_context("identity", x):
            return self.apply("identity", x)

    def segment_in(self, x: Tensor, segment: int) -> Tensor:
        """Return x and mark the begin of a checkpoint segment, which gradients
        recompute.

        A part is what lies between the `segment_in` and `segment_out` of a number, its
        ends added one after the other. None of it is kept for a gradient, which takes
        less memory and more time.
        """
        with op_context("segment_in", x):
            return self.apply("segment_in", x, segment=segment)

    def segment_out(self, x: Tensor, segment: int) -> Tensor:
        """Return x and mark the end of the checkpoint segment; see `segment_in`."""
        with op_context("segment_out", x):
            return self.apply("segment_out", x, segment=segment)

    def gradients(
        self,
        outputs: Tensor | Sequence[Tensor],
        wrt: Sequence[Tensor],
        grads: Sequence[Tensor] | None = None,
    ) -> list[Tensor]:
        """Return the gradient of the outputs by each tensor of `wrt`, in that tensor's
        shape and dtype.

        It is that of sum(output * grad) over all outputs: a vector-Jacobian product,
        in reverse mode. Where an output does not depend on a tensor its gradient is
        zeros; functions that are flat (floor, sign) and paths through integers and
        bools (conditions, positions) add nothing. At a kink it is one of the slopes
        beside it; a maximum of equal elements shares it among them.

        grads   of the outputs; None: ones
        Errors   DTypeError for what is no float; ShapeError for gradients unlike their
        outputs; GradientRefused for an op without a derivative, with the path to it.
        """
        output_list = [outputs] if isinstance(outputs, Tensor) else outputs
        output_tensors, wrt_tensors = self._check_tensors(
            output_list, wrt, "gradients", "outputs=[y], wrt=[x]"
        )
        graph, context = cast(Any, self), f"gradients in graph '{cast(Any, self).name}'"
        if grads is None:
            output_grads = [
                graph.expand(graph.constant(1, y.dtype), y.shape)
                for y in output_tensors
            ]
        else:
            output_grads = list(as_tensor_tuple(grads, context, "grads=[dy]"))
        return compute_vjp(graph, output_tensors, output_grads, wrt_tensors, context)

    def tangents(
        self,
        outputs: Tensor | Sequence[Tensor],
        wrt: Sequence[Tensor],
        tangents: Sequence[Tensor],
    ) -> list[Tensor]:
        """Return the tangent of each output when the tensors of `wrt` move along
        `tangents`.

        A Jacobian-vector product, in forward mode: of each output's shape and dtype.
        Errors   as `gradients`.
        """
        output_list = [outputs] if isinstance(outputs, Tensor) else outputs
        output_tensors, wrt_tensors = self._check_tensors(
            output_list, wrt, "tangents", "outputs=[y], wrt=[x]"
        )
        graph, context = cast(Any, self), f"tangents in graph '{cast(Any, self).name}'"
        wrt_tangents = list(as_tensor_tuple(tangents, context, "tangents=[dx]"))
        return compute_jvp(graph, output_tensors, wrt_tensors, wrt_tangents, context)

    def vectorized(
        self,
        outputs: Sequence[Tensor],
        examples: Sequence[Tensor],
        wholes: Sequence[Tensor],
    ) -> list[Tensor]:
        """Batch a computation built for one example over many examples along a new
        first axis.

        outputs   computed of `examples`; one that is not is repeated
        examples  tensors of the graph, computed of no other of them
        wholes    in place of each, one that has as many along an axis before its own
        Errors   ShapeError; Unsupported for very many of an op that takes one at a time
        """
        output_tensors, example_tensors = self._check_tensors(
            outputs, examples, "vectorized", "outputs=[y]"
        )
        batches = self._check_tensors([], wholes, "vectorized", "wholes=[xs]")[1]
        graph = cast(Any, self)
        context = f"vectorized in graph '{cast(Any, self).name}'"
        if len(batches) != len(example_tensors) or not example_tensors:
            raise ShapeError(
                context,
                f"got {len(batches)} batches in `wholes` for {len(example_tensors)} "
                f"tensors in `examples`",
                "expected at least one example tensor, and one batch per example "
                "tensor",
            )
        counts = {batch.shape[0] if batch.rank else -1 for batch in batches}
        for example, batch in zip(example_tensors, batches, strict=True):
            shape = (min(counts), *example.shape)
            if tuple(batch.shape) != shape or batch.dtype != example.dtype:
                raise ShapeError(
                    context,
                    f"a batch in `wholes` is {format_shape(batch.shape)} {batch.dtype}",
                    f"expected {format_shape(shape)} {example.dtype} ({min(counts)} "
                    f"examples of {format_shape(example.shape)})",
                )
        return vectorize(graph, output_tensors, example_tensors, batches, counts.pop())

    def _check_tensors(
        self, outputs: object, wrt: object, method: str, usage: str
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return both arguments as lists of tensors of this graph."""
        context = f"{method} in graph '{cast(Any, self).name}'"
        output_tensors = as_tensor_tuple(outputs, context, usage)
        wrt_tensors = as_tensor_tuple(wrt, context, usage)
        for tensor in (*output_tensors, *wrt_tensors):
            with op_context(method, tensor):
                pass
        return list(output_tensors), list(wrt_tensors)
