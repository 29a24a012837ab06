"""Builder methods that differentiate what a graph computes, in the graph itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from rlxweb.errors import ShapeError
from rlxweb.ir.batching import vectorized
from rlxweb.ir.moves_builder import MovesBuilder
from rlxweb.ir.pullback import pulled_back, pushed_forward
from rlxweb.ir.shape import show
from rlxweb.ir.tensor import Tensor, listed, working


class DerivativeBuilder(MovesBuilder):
    """Derivatives, over `apply`; mixed into Graph."""

    def stop_gradient(self, x: Tensor) -> Tensor:
        """x, which derivatives take for a constant."""
        with working("stop_gradient", x):
            return self.apply("stop_gradient", x)

    def identity(self, x: Tensor) -> Tensor:
        """x, as a value of its own: to differentiate by it where it is used from here
        on, and not where x was before.
        """
        with working("identity", x):
            return self.apply("identity", x)

    def segment_in(self, x: Tensor, segment: int) -> Tensor:
        """x, where a part of a graph begins that gradients compute again.

        A part is what lies between the `segment_in` and `segment_out` of a number, its
        ends added one after the other. None of it is kept for a gradient, which takes
        less memory and more time.
        """
        with working("segment_in", x):
            return self.apply("segment_in", x, segment=segment)

    def segment_out(self, x: Tensor, segment: int) -> Tensor:
        """x, where that part ends; see `segment_in`."""
        with working("segment_out", x):
            return self.apply("segment_out", x, segment=segment)

    def gradients(
        self,
        outputs: Tensor | Sequence[Tensor],
        wrt: Sequence[Tensor],
        grads: Sequence[Tensor] | None = None,
    ) -> list[Tensor]:
        """The gradient of the outputs by each tensor of `wrt`, of its shape and dtype.

        It is that of sum(output * grad) over all outputs: a vector-Jacobian product,
        in reverse mode. Where an output does not depend on a tensor its gradient is
        zeros; functions that are flat (floor, sign) and paths through integers and
        bools (conditions, positions) add nothing. At a kink it is one of the slopes
        beside it; a maximum of equal elements shares it among them.

        grads   of the outputs; None: ones
        Errors   DTypeError for what is no float; ShapeError for gradients unlike their
        outputs; GradientRefused for an op without a derivative, with the path to it.
        """
        every = [outputs] if isinstance(outputs, Tensor) else outputs
        ends, by = self._both(every, wrt, "gradients", "outputs=[y], wrt=[x]")
        me, doing = cast(Any, self), f"gradients in graph '{cast(Any, self).name}'"
        if grads is None:
            given = [me.expand(me.constant(1, y.dtype), y.shape) for y in ends]
        else:
            given = list(listed(grads, doing, "grads=[dy]"))
        return pulled_back(me, ends, given, by, doing)

    def tangents(
        self,
        outputs: Tensor | Sequence[Tensor],
        wrt: Sequence[Tensor],
        tangents: Sequence[Tensor],
    ) -> list[Tensor]:
        """How each output moves when the tensors of `wrt` move along `tangents`.

        A Jacobian-vector product, in forward mode: of each output's shape and dtype.
        Errors   as `gradients`.
        """
        every = [outputs] if isinstance(outputs, Tensor) else outputs
        ends, by = self._both(every, wrt, "tangents", "outputs=[y], wrt=[x]")
        me, doing = cast(Any, self), f"tangents in graph '{cast(Any, self).name}'"
        given = list(listed(tangents, doing, "tangents=[dx]"))
        return pushed_forward(me, ends, by, given, doing)

    def vectorized(
        self,
        outputs: Sequence[Tensor],
        examples: Sequence[Tensor],
        wholes: Sequence[Tensor],
    ) -> list[Tensor]:
        """What was computed of one example, for many: with them along the first axis.

        outputs   computed of `examples`; one that is not is repeated
        examples  tensors of the graph, computed of no other of them
        wholes    in place of each, one that has as many along an axis before its own
        Errors   ShapeError; Unsupported for very many of an op that takes one at a time
        """
        ends, ones = self._both(outputs, examples, "vectorized", "outputs=[y]")
        every = self._both([], wholes, "vectorized", "wholes=[xs]")[1]
        me, doing = cast(Any, self), f"vectorized in graph '{cast(Any, self).name}'"
        if len(every) != len(ones) or not ones:
            raise ShapeError(doing, f"{len(every)} wholes of {len(ones)} examples")
        counts = {whole.shape[0] if whole.rank else -1 for whole in every}
        for one, whole in zip(ones, every, strict=True):
            shape = (min(counts), *one.shape)
            if tuple(whole.shape) != shape or whole.dtype != one.dtype:
                raise ShapeError(
                    doing,
                    f"a whole is {show(whole.shape)} {whole.dtype}",
                    f"it is {min(counts)} of {show(one.shape)} {one.dtype}",
                )
        return vectorized(me, ends, ones, every, counts.pop())

    def _both(
        self, outputs: object, wrt: object, what: str, so: str
    ) -> tuple[list[Tensor], list[Tensor]]:
        doing = f"{what} in graph '{cast(Any, self).name}'"
        ends, by = listed(outputs, doing, so), listed(wrt, doing, so)
        for one in (*ends, *by):
            with working(what, one):
                pass
        return list(ends), list(by)
