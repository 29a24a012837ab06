"""Chooses how an op runs on one device, and remembers the choice.

Asked twice about the same op and types: by the compiler ("can this stay one step?") and
by the program builder ("then give me the launches"). The first variant whose feature
the device has and whose launches fit is taken, then the op's own kernel, else nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from rlxweb.compile.plan import Step
from rlxweb.cost.fusion_gate import IoFusionGate
from rlxweb.cost.graph_work import asked_of
from rlxweb.cost.kinds import assumed_gpu
from rlxweb.cost.model import WgpuCostModel
from rlxweb.cost.race import Race, nearest
from rlxweb.device import Device
from rlxweb.errors import LimitExceeded
from rlxweb.gpu.port import DeviceFacts
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import (
    TURNED,
    Call,
    Compose,
    Finish,
    HostOnly,
    Kernel,
    Recipe,
    Ref,
    View,
)
from rlxweb.ir.op import Attrs, Op, TensorType, Types
from rlxweb.kept import Kept
from rlxweb.kernels.expression import copy_call
from rlxweb.kernels.finish import finish_of, finished
from rlxweb.kernels.launch import Gathered, Launch, Shader, launches, width_of
from rlxweb.kernels.lines import LEAST_SHARED, MOST_SHARED, line_call
from rlxweb.limits import Limits
from rlxweb.recipes.variants import (
    COPIES,
    VARIANTS,
    CopyVariant,
    Hardware,
    Variant,
    table_of,
    variants_of,
)

_ALONG, _TOGETHER = 1 << 12, 1 << 13
"""Elements of the longest line of one invocation, and of a workgroup."""
CAPACITY, CAPACITY_BYTES = 1024, 64 << 20


@cache
def assumed_gate() -> IoFusionGate:
    """Until the device is measured; whoever knows better puts theirs in its place."""
    model = WgpuCostModel.from_record(assumed_gpu(), Device.GPU)
    return IoFusionGate.calibrated(model, "assumed")


def hardware_of(facts: DeviceFacts, limits: Limits) -> Hardware:
    """What the kernels are chosen for.

    Browsers have drivers zero workgroup memory. A software one compiles that cell by
    cell, seconds long for some KiB, and does it for every workgroup: none is used.
    """
    if facts.software and facts.backend == "webgpu":
        limits = replace(limits, max_compute_workgroup_storage_size=0)
    features = facts.features
    if facts.backend == "webgpu":
        # A browser wants them enabled by a directive that wgpu's compiler has not.
        features -= {"subgroup"}
    return Hardware(limits, features)


def _held_bytes(kind: TensorType) -> int:
    return kind.numel * width_of(kind.dtype)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A recipe that fits, its launches in order and the variant's name.

    recipe   without its calls, which became the launches
    """

    recipe: Recipe
    launches: tuple[Launch, ...]
    variant: str


class Recipes:
    """The recipes of one device, least recently used forgotten first.

    rows     the faster ways that may be taken, tried in this order
    copies   and those to copy between layouts
    """

    def __init__(
        self,
        hardware: Hardware,
        rows: Sequence[Variant] = VARIANTS,
        copies: Sequence[CopyVariant] = COPIES,
    ) -> None:
        self.hardware = hardware
        self.rows, self.copies = tuple(rows), tuple(copies)
        # The op is kept beside its answer: its id is in the key and must stay taken.
        self._known: Kept[Any, tuple[Op, Chosen | None]] = Kept(
            CAPACITY, CAPACITY_BYTES
        )
        self._told: Sequence[Race] = ()
        self._races: tuple[Race, ...] = ()
        self._shaders: Kept[Shader, Shader] = Kept(CAPACITY, CAPACITY_BYTES)

    def native(self, op: Op, inputs: Types, out: TensorType, attrs: Attrs) -> bool:
        """The compiler's question: may this node stay one step?"""
        if not isinstance(op.lower, Kernel | Compose):
            return not isinstance(op.lower, HostOnly)
        if out.numel == 0 and isinstance(op.lower, Kernel):
            return True
        return self.choose(op, inputs, out, attrs) is not None

    def choose(
        self,
        op: Op,
        inputs: Types,
        out: TensorType,
        attrs: Attrs,
        finish: Finish | None = None,
    ) -> Chosen | None:
        """The launches of an op, or None when nothing fits the device.

        finish   what is done on its result before it is stored, if anything
        """
        frozen = tuple(sorted((name, _text(value)) for name, value in attrs.items()))
        key = (op.name, id(op), inputs, out, frozen, finish)

        def make() -> tuple[Op, Chosen | None]:
            return op, self._search(op, inputs, out, attrs, finish)

        return self._known.made(key, make, _weight)[1]

    def of_step(self, graph: Graph, step: Step) -> Chosen | None:
        """The launches of a kernel step, with what follows the kernel in it."""
        node, finish = graph.node(step.nodes[0]), None
        layouts = [replace(o.layout, offset=0) for o in step.inputs]
        own, sides = layouts[: len(node.inputs)], layouts[len(node.inputs) :]
        if len(step.nodes) > 1:
            reads = list(zip(step.reads, sides, strict=True))
            finish = finish_of(graph, step.nodes, reads)
        return self.choose(*_asked(graph, node, own), finish)

    def launch_count(self, op: Op, inputs: Types, out: TensorType, attrs: Attrs) -> int:
        """How many dispatches the op takes."""
        if out.numel == 0:
            return 0
        chosen = self.choose(op, inputs, out, attrs)
        return 1 if chosen is None else len(chosen.launches)

    def extra_bytes(self, op: Op, inputs: Types, out: TensorType, attrs: Attrs) -> int:
        """Return the bytes that the op's dispatches bind beyond one pass over its
        operands and result: scratch, tables, and operands that are bound again.
        """
        chosen = None if out.numel == 0 else self.choose(op, inputs, out, attrs)
        if chosen is None:
            return 0
        bound = Counter[Ref]()
        for launch in chosen.launches:
            for one in launch.bindings:
                parts = one.parts if isinstance(one, Gathered) else ((one, 0),)
                for part, _ in parts:
                    bound[part.ref] += part.nbytes
        once = {Ref("in", at): _held_bytes(kind) for at, kind in enumerate(inputs)}
        once[Ref("out")] = _held_bytes(out)
        return sum(max(0, nbytes - once.get(ref, 0)) for ref, nbytes in bound.items())

    def prefer(self, races: Sequence[Race]) -> None:
        """Try the ways of an op in the order in which a race of them ended.

        What is chosen from now on; races of another table of rows do not count.
        """
        if races is self._told:  # asked at every compilation
            return
        table = table_of(self.rows)
        mine = tuple(race for race in races if race.table == table)
        if mine != self._races:
            self._known.clear()
        self._told, self._races = races, mine

    def rivals(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> tuple[str, ...]:
        """The ways that may be taken here; the op's own kernel by the op's name."""
        found = (
            self._taken(way, op, inputs, out, attrs)
            for way in (*self._open(op.name), None)
        )
        return tuple(one.variant for one in found if one is not None)

    def _open(self, op: str) -> list[Variant]:
        rows = variants_of(op, self.rows)
        return [row for row in rows if row.is_open(self.hardware)]

    def finishes(
        self,
        graph: Graph,
        ids: Sequence[int],
        layouts: Sequence[Layout],
        reads: Sequence[tuple[int, Layout]],
    ) -> bool:
        """The compiler's question: may a kernel and what follows it be one step?"""
        finish = finish_of(graph, ids, reads)
        if finish is None:
            return False
        node = graph.node(ids[0])
        return self.choose(*_asked(graph, node, layouts), finish) is not None

    @property
    def line_length(self) -> int:
        """Elements of the longest line that one pass goes along."""
        room = self.hardware.limits.max_storage_buffer_binding_size // 8
        return min(room, _ALONG if self._line_lanes < LEAST_SHARED else _TOGETHER)

    @property
    def _line_lanes(self) -> int:
        """Invocations that may share a line, by their workgroup memory."""
        limits = self.hardware.limits
        room = limits.max_compute_workgroup_storage_size // 16 // MOST_SHARED
        return max(1, min(limits.workgroup_lanes, room))

    def along(self, graph: Graph, step: Step) -> Call:
        """The pass of some nodes along lines."""
        layouts = [operand.layout for operand in step.inputs]
        return line_call(graph, step.nodes, layouts, self._line_lanes)

    def _search(
        self,
        op: Op,
        inputs: Types,
        out: TensorType,
        attrs: Attrs,
        finish: Finish | None,
    ) -> Chosen | None:
        for way in self._in_order(op.name, inputs):
            found = self._taken(way, op, inputs, out, attrs, finish)
            if found is not None:
                return found
        return None

    def _in_order(self, op: str, inputs: Types) -> list[Variant | None]:
        """The rows as the table has them and the op's own kernel (None) last, or all
        as they ended their race; those that were not in it after them.
        """
        ways: list[Variant | None] = [*self._open(op), None]
        race = nearest(self._races, op, inputs)
        if race is None:
            return ways
        place = {name: at for at, (name, _) in enumerate(race.ways)}
        wrong = {name for name, _ in race.wrong}
        right = [w for w in ways if w is None or w.name not in wrong]
        right.sort(key=lambda w: place.get(w.name if w else op, len(place)))
        return right

    def _taken(
        self,
        way: Variant | None,
        op: Op,
        inputs: Types,
        out: TensorType,
        attrs: Attrs,
        finish: Finish | None = None,
    ) -> Chosen | None:
        """By that row, or by the op's own kernel; None where it does not fit."""
        if way is not None:
            return self._by(way, inputs, out, attrs, finish)
        made = op.recipe(inputs, out, attrs)
        found = self._fit(made, inputs, out, op.name, finish)
        return found if isinstance(found, Chosen) else None

    def copy(self, source: Layout, target: Layout, dtype: DType) -> Call:
        """The call that copies from one layout to another of the same shape."""
        for way in self.copies:
            made = self._copied(way, source, target, dtype)
            if made is not None:
                return made
        return copy_call(source, target, dtype)

    def _copied(
        self, way: CopyVariant, source: Layout, target: Layout, dtype: DType
    ) -> Call | None:
        """The call of one way to copy, where it fits the device."""
        made = way.call(source, target, dtype, self.hardware.limits)
        try:
            fits = made and launches(made, (dtype, dtype), self.hardware.limits)
        except LimitExceeded:
            return None
        return made if fits else None

    def _by(
        self,
        variant: Variant,
        inputs: Types,
        out: TensorType,
        attrs: Attrs,
        finish: Finish | None = None,
    ) -> Chosen | None:
        recipe = variant.recipe(inputs, out, attrs, self.hardware.limits)
        found = self._fit(recipe, inputs, out, variant.name, finish)
        return found if isinstance(found, Chosen) else None

    def ways(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> tuple[str, ...]:
        """Return the rows that could run the op here."""
        if out.numel == 0:
            return ()
        rows = self._open(op.name)
        fitting = [v.name for v in rows if self._by(v, inputs, out, attrs)]
        return (*fitting, *self._ways_to_copy(op, inputs, out, attrs))

    def _ways_to_copy(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> list[str]:
        """The rows that could make a dense array of a view of another."""
        if not isinstance(op.lower, View):
            return []
        lies = op.lower.layout(Layout.dense(inputs[0].shape), out.shape, attrs)
        if lies is None:
            return []
        dense = Layout.dense(out.shape)
        return [w.name for w in self.copies if self._copied(w, lies, dense, out.dtype)]

    def _fit(
        self,
        recipe: Recipe | None,
        inputs: Types,
        out: TensorType,
        name: str,
        finish: Finish | None = None,
    ) -> Chosen | LimitExceeded | None:
        """The launches of a recipe, or the limit that keeps it off this device."""
        if recipe is not None and finish is not None:
            most = self.hardware.limits.max_storage_buffers_per_shader_stage
            recipe = finished(recipe, finish, len(inputs), most)
            sides = (TensorType((side.numel,), side.dtype) for side in finish.sides)
            inputs = (*inputs, *sides)
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


def _asked(
    graph: Graph, node: Node, layouts: Sequence[Layout]
) -> tuple[Op, Types, TensorType, Attrs]:
    """What a recipe is asked, with how the operands lie where that is not dense."""
    op, inputs, out, attrs = asked_of(graph, node)
    turned = tuple(replace(layout, offset=0).is_turned for layout in layouts)
    return op, inputs, out, {**attrs, TURNED: turned} if any(turned) else attrs


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
