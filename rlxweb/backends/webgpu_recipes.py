"""Chooses how an op runs on one device, and remembers the choice.

Asked twice about the same op and types: by the compiler ("can this stay one step?") and
by the program builder ("then give me the launches"). The first variant whose gate opens
and whose launches fit is taken, then the op's own kernel, else nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlxweb.errors import LimitExceeded
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.lowering import Compose, HostOnly, Kernel, Recipe, Ref
from rlxweb.ir.op import Attrs, Op, TensorType, Types
from rlxweb.kept import Kept
from rlxweb.kernels.launch import Launch, Shader, launches
from rlxweb.recipes.variants import Hardware, variants_of

CAPACITY, CAPACITY_BYTES = 1024, 64 << 20


@dataclass(frozen=True, slots=True)
class Chosen:
    """A recipe that fits, its launches in order and the variant's name.

    recipe   without its calls, which became the launches
    """

    recipe: Recipe
    launches: tuple[Launch, ...]
    variant: str


class Recipes:
    """The recipes of one device, least recently used forgotten first."""

    def __init__(self, hardware: Hardware, use_variants: bool = True) -> None:
        self.hardware = hardware
        self.use_variants = use_variants
        # The op is kept beside its answer: its id is in the key and must stay taken.
        self._known: Kept[Any, tuple[Op, Chosen | None]] = Kept(
            CAPACITY, CAPACITY_BYTES
        )
        self._shaders: Kept[Shader, Shader] = Kept(CAPACITY, CAPACITY_BYTES)

    def native(self, op: Op, inputs: Types, out: TensorType, attrs: Attrs) -> bool:
        """The compiler's question: may this node stay one step?"""
        if not isinstance(op.lower, Kernel | Compose):
            return not isinstance(op.lower, HostOnly)
        if out.numel == 0 and isinstance(op.lower, Kernel):
            return True
        return self.choose(op, inputs, out, attrs) is not None

    def choose(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> Chosen | None:
        """The launches of an op, or None when nothing fits the device."""
        frozen = tuple(sorted((name, _text(value)) for name, value in attrs.items()))
        key = (op.name, id(op), inputs, out, frozen)

        def make() -> tuple[Op, Chosen | None]:
            return op, self._search(op, inputs, out, attrs)

        return self._known.made(key, make, _weight)[1]

    def launch_count(self, op: Op, inputs: Types, out: TensorType, attrs: Attrs) -> int:
        """How many dispatches the op takes."""
        if out.numel == 0:
            return 0
        chosen = self.choose(op, inputs, out, attrs)
        return 1 if chosen is None else len(chosen.launches)

    def _search(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> Chosen | None:
        for variant in variants_of(op.name) if self.use_variants else ():
            if variant.gate(self.hardware):
                recipe = variant.recipe(inputs, out, attrs, self.hardware.limits)
                found = self._fit(recipe, inputs, out, variant.name)
                if isinstance(found, Chosen):
                    return found
        found = self._fit(op.recipe(inputs, out, attrs), inputs, out, op.name)
        return found if isinstance(found, Chosen) else None

    def _fit(
        self, recipe: Recipe | None, inputs: Types, out: TensorType, name: str
    ) -> Chosen | LimitExceeded | None:
        """The launches of a recipe, or the limit that keeps it off this device."""
        if recipe is None:
            return None
        found: list[Launch] = []
        try:
            for call in recipe.calls:
                dtypes = [_dtype(a.ref, recipe, inputs, out) for a in call.accesses]
                found += launches(call, dtypes, self.hardware.limits)
        except LimitExceeded as error:
            return error
        shared = tuple(self._with_shared_text(launch) for launch in found)
        return Chosen(replace(recipe, calls=()), shared, name)

    def _with_shared_text(self, launch: Launch) -> Launch:
        """Sizes are uniforms: the next size writes the same long text anew."""
        own = launch.shader
        shader = self._shaders.made(own, lambda: own, lambda made: len(made.source))
        return launch if shader is own else replace(launch, shader=shader)

    def refusal(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> LimitExceeded | None:
        """The limit that keeps the op's own kernel off this device, if one does."""
        found = self._fit(op.recipe(inputs, out, attrs), inputs, out, op.name)
        return found if isinstance(found, LimitExceeded) else None


def _dtype(
    ref: Ref, recipe: Recipe, inputs: Sequence[TensorType], out: TensorType
) -> DType:
    if ref.kind == "in":
        return inputs[ref.index].dtype
    if ref.kind == "out":
        return out.dtype
    if ref.kind == "scratch":
        return as_dtype(recipe.scratch[ref.index].scalar)
    return as_dtype(recipe.tables[ref.index].dtype)


def _weight(known: tuple[Op, Chosen | None]) -> int:
    """Bytes on the host: tables of a long transform, and shader text."""
    chosen = known[1]
    if chosen is None:
        return 0
    texts = {id(one.shader.source): len(one.shader.source) for one in chosen.launches}
    tables = sum(table.nbytes for table in chosen.recipe.tables)
    return sum(texts.values()) + tables


def _text(value: Any) -> str:
    # repr leaves the middle of a long array out.
    return repr((value, value.tobytes())) if hasattr(value, "tobytes") else repr(value)
