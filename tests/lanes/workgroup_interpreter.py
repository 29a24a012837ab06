"""Interpreter of one workgroup of a WGSL kernel in NumPy, one array element per lane,
with counts.

Lanes go on together, statement by statement, as they do on no machine: so what depends
on an order between two barriers must be found another way, and is. Every cell of
workgroup memory remembers who touched it since the last barrier; two lanes of which one
wrote are a race, a barrier that some lanes do not reach is an error. What nobody wrote
is NaN.

Counted for 32 lanes a warp and 32 banks of 4 bytes, as on NVIDIA's and most others':
a request costs as many wavefronts as its fullest bank has distinct words; of a vec2
half a warp is served at once, of a vec4 a quarter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import neg
from typing import Any

import numpy as np

from tests.lanes.subgroup_layout import SubgroupLayout
from tests.lanes.wgsl_arithmetic import (
    FUNCTIONS,
    OPERATORS,
    apply_componentwise,
    parse_literal,
)
from tests.lanes.wgsl_parser import Node, ParsedFunction, ParsedModule, parse_wgsl
from tests.lanes.wgsl_types import SCALAR_DTYPES, WgslTypes
from tests.lanes.workgroup_access_tracking import (
    DataRace,
    TrackedWorkgroupArray,
    WorkgroupCounts,
    count_bank_conflicts,
    count_sectors,
)

POISON_BITS = 0x7FE0_7FE1


@dataclass(slots=True)
class CallFrame:
    """Frame of a call: its names, the lanes that returned or left the loop, and their
    results.
    """

    names: dict[str, Any] = field(default_factory=dict)
    returned: Any = None
    broke: Any = None
    continued: Any = None
    result: Any = None


class WorkgroupInterpreter:
    """Interpreter of `main` for one workgroup."""

    def __init__(
        self,
        source: str,
        lanes: int,
        uniforms: Mapping[str, float],
        storage: Sequence[Any],
        group: int = 0,
        subgroups: SubgroupLayout | None = None,
        constants: Mapping[str, int] | None = None,
    ) -> None:
        self._evaluators = {
            name.removeprefix("_value_"): getattr(self, name)
            for name in dir(WorkgroupInterpreter)
            if name.startswith("_value_")
        }
        self.module: ParsedModule = parse_wgsl(source)
        self.globals: dict[str, Any] = {}
        self.types = WgslTypes(self.module, self.globals)
        self.lanes = np.arange(lanes)
        self.subgroups = subgroups or SubgroupLayout()
        self.counts = WorkgroupCounts()
        self.uniforms = {
            name: SCALAR_DTYPES[self.types.resolve_alias(kind)](uniforms[name])
            for name, kind in self.module.uniforms.items()
        }
        self.storage = dict(zip(self.module.storage, storage, strict=True))
        override_values = {"WG": lanes, **(constants or {})}
        self.mask = np.ones(lanes, bool)
        self.frame = CallFrame({}, *(np.zeros(lanes, bool) for _ in range(3)))
        for name, value in self.module.overrides.items():
            self.globals[name] = np.uint32(
                override_values.get(name, self.evaluate(value))
            )
        for name, (_, value) in self.module.constants.items():
            self.globals[name] = self.evaluate(value)
        for name, kind in self.module.private.items():
            self.globals[name] = self.types.zero_value(kind)
        self.shared: dict[str, TrackedWorkgroupArray] = {}
        for name, kind in self.module.shared.items():
            self.shared[name] = TrackedWorkgroupArray(name, self.types.allocate(kind))
            self.shared[name].values.view(np.uint32)[...] = POISON_BITS
        self.group = group

    def run(self) -> WorkgroupCounts:
        """Run `main` to its end. Errors  DataRace."""
        zero = np.uint32(0)
        main = self.module.functions["main"]
        builtins = {
            "wid": (np.uint32(self.group), zero, zero),
            "nwg": (np.uint32(1 << 20), np.uint32(1), np.uint32(1)),
            "lid": self.lanes.astype(np.uint32),
        }
        names = [name for name, _ in main.parameters]
        with np.errstate(all="ignore"):
            self._call_function(main, [self._builtin(name, builtins) for name in names])
        return self.counts

    def _builtin(self, name: str, builtins: Mapping[str, Any]) -> Any:
        return (
            builtins[name]
            if name in builtins
            else self.subgroups.builtin_value(name, self.lanes)
        )

    # --- statements ---------------------------------------------------------------

    def _call_function(self, function: ParsedFunction, arguments: Sequence[Any]) -> Any:
        names = {
            name: value
            for (name, _), value in zip(function.parameters, arguments, strict=True)
        }
        before, mask = self.frame, self.mask
        none = np.zeros(len(self.lanes), bool)
        self.frame = CallFrame(names, none, none, none)
        self._run_body(function.body)
        result, self.frame, self.mask = self.frame.result, before, mask
        return result

    def _run_body(self, body: Sequence[Node]) -> None:
        for statement in body:
            if not self.mask.any():
                return
            getattr(self, f"_{statement[0]}")(*statement[1:])

    def _block(self, body: Sequence[Node]) -> None:
        self._run_body(body)

    def _let(self, name: str, kind: Any, value: Node) -> None:
        self.frame.names[name] = self.types.convert(kind, self.evaluate(value))

    def _var(self, name: str, kind: Any, value: Node | None) -> None:
        if value is None:
            initial = self.types.zero_value(kind)
        else:
            initial = self.types.convert(kind, self.evaluate(value))
        self.frame.names[name] = initial

    def _set(self, target: Node, op: str, value: Node) -> None:
        new = self.evaluate(value)
        if op != "=":
            new = self._apply_binary(op[:-1], self.evaluate(target), new)
        if target[0] == "id" and target[1] not in self.shared:
            local = target[1] in self.frame.names
            names = self.frame.names if local else self.globals
            names[target[1]] = self._select_active(new, names[target[1]])
        elif target[0] == "of":
            composite = self.frame.names[target[1][1]]
            self.frame.names[target[1][1]] = self._replace_member(
                composite, target[2], new
            )
        else:
            self._store(target, new)

    def _replace_member(self, composite: Any, member: str, new: Any) -> Any:
        if isinstance(composite, dict):
            return {**composite, member: self._select_active(new, composite[member])}
        index = "xyzw".index(member)
        return (
            *composite[:index],
            self._select_active(new, composite[index]),
            *composite[index + 1 :],
        )

    def _select_active(self, new: Any, old: Any) -> Any:
        if isinstance(old, dict):
            return {name: self._select_active(new[name], old[name]) for name in old}
        if isinstance(old, tuple):
            return tuple(
                self._select_active(n, o) for n, o in zip(new, old, strict=True)
            )
        kind = getattr(old, "dtype", None) or getattr(new, "dtype", None)
        return np.where(self.mask, new, old).astype(kind)

    def _do(self, call: Node) -> None:
        self.evaluate(call)

    def _if(
        self, condition: Node, then: Sequence[Node], else_body: Sequence[Node]
    ) -> None:
        before = self.mask
        is_true = np.broadcast_to(self.evaluate(condition), self.mask.shape)
        for mask, body in ((before & is_true, then), (before & ~is_true, else_body)):
            self.mask = mask & ~self.frame.returned
            self._run_body(body)
        self.mask = before & ~(
            self.frame.returned | self.frame.broke | self.frame.continued
        )

    def _for(
        self,
        initializer: Node | None,
        condition: Node,
        continuing: Node | None,
        body: Any,
    ) -> None:
        before = self.mask
        outer_broke = self.frame.broke
        outer_continued = self.frame.continued
        names = dict(self.frame.names)
        self.frame.broke = outer_broke & False
        if initializer:
            self._run_body([initializer])
        running = self.mask
        while True:
            holds = np.broadcast_to(self.evaluate(condition), self.mask.shape)
            running = running & holds
            if not running.any():
                break
            self.mask, self.frame.continued = running, running & False
            self._run_body(body)
            running = running & ~(self.frame.returned | self.frame.broke)
            self.mask = running
            if continuing:
                self._run_body([continuing])
        self.frame.broke, self.frame.continued = outer_broke, outer_continued
        self.mask = before & ~(self.frame.returned | outer_broke)
        # What was declared inside is gone, what was changed inside stays.
        self.frame.names = {k: self.frame.names[k] for k in names}

    def _break(self) -> None:
        self.frame.broke = self.frame.broke | self.mask
        self.mask = self.mask & False

    def _continue(self) -> None:
        self.frame.continued = self.frame.continued | self.mask
        self.mask = self.mask & False

    def _return(self, value: Node | None) -> None:
        if value is not None:
            result = self.evaluate(value)
            old = self.frame.result
            self.frame.result = (
                result if old is None else self._select_active(result, old)
            )
        self.frame.returned = self.frame.returned | self.mask
        self.mask = self.mask & False

    # --- expressions --------------------------------------------------------------

    def evaluate(self, node: Node) -> Any:
        return self._evaluators[node[0]](*node[1:])

    def _value_num(self, text: str | int) -> Any:
        return parse_literal(text)

    def _value_id(self, name: str) -> Any:
        if name in self.frame.names:
            return self.frame.names[name]
        if name in self.shared:
            return self._load(name, np.zeros(len(self.lanes), np.uint32))
        if name in ("true", "false"):
            return np.bool_(name == "true")
        return self.globals[name]

    def _value_un(self, op: str, x: Node) -> Any:
        if op == "&":
            return x
        operand = self.evaluate(x)
        if isinstance(operand, tuple):
            return tuple(-v for v in operand)
        return {"-": neg, "!": np.logical_not, "~": np.invert}[op](operand)

    def _value_bin(self, op: str, x: Node, y: Node) -> Any:
        return self._apply_binary(op, self.evaluate(x), self.evaluate(y))

    def _apply_binary(self, op: str, x: Any, y: Any) -> Any:
        if isinstance(x, tuple) or isinstance(y, tuple):
            size = len(x) if isinstance(x, tuple) else len(y)
            xs = x if isinstance(x, tuple) else (x,) * size
            ys = y if isinstance(y, tuple) else (y,) * size
            return tuple(
                self._apply_binary(op, a, b) for a, b in zip(xs, ys, strict=True)
            )
        self.counts.operations += 1
        return OPERATORS[op](x, y)

    def _value_of(self, x: Node, member: str) -> Any:
        if x == ("id", "u"):
            return self.uniforms[member]
        composite = self.evaluate(x)
        if isinstance(composite, dict):
            return composite[member]
        components = tuple(composite["xyzw".index(c)] for c in member)
        return components[0] if len(components) == 1 else components

    def _value_at(self, array: Node, index: Node) -> Any:
        cell = self.evaluate(index)
        if array[0] == "id" and array[1] in self.shared:
            return self._load(array[1], cell)
        if array[0] == "id" and array[1] in self.storage:
            return self._load_storage(array[1], cell)
        return self.evaluate(array)[int(cell)]

    def _value_call(self, name: str, kinds: Any, arguments: Sequence[Node]) -> Any:
        function = self.module.functions.get(name)
        if function is not None:
            return self._call_function(function, [self.evaluate(a) for a in arguments])
        if name in self.module.structs:
            values = [self.evaluate(a) for a in arguments]
            return dict(zip(self.module.structs[name], values, strict=True))
        if name.startswith("workgroup"):
            return self._pass_barrier(*arguments)
        if name.startswith("atomic"):
            return self._apply_atomic(name, arguments)
        values = [self.evaluate(a) for a in arguments]
        if name.startswith("subgroup"):
            return self._apply_subgroup_function(name, *values)
        name = self.types.resolve_alias(name)
        if isinstance(name, tuple):
            name, *kinds = name
        if name in SCALAR_DTYPES:
            return np.asarray(values[0] if values else 0).astype(SCALAR_DTYPES[name])
        if name in ("vec2", "vec3", "vec4"):
            return self.types.make_vector(
                int(name[-1]), self.types.resolve_alias(kinds[0]), values
            )
        if name == "bitcast":
            return self.types.bitcast(self.types.resolve_alias(kinds[0]), values[0])
        self.counts.operations += 1
        return apply_componentwise(FUNCTIONS[name], values)

    # --- lanes together -----------------------------------------------------------

    def _pass_barrier(self, pointer: Node | None = None) -> Any:
        """workgroupBarrier, or workgroupUniformLoad: a read between two of them."""
        if not self.mask.all():
            raise DataRace("a barrier that some lanes do not reach")
        self.counts.barriers += 1
        for array in self.shared.values():
            array.reset_accesses()
        if pointer is None:
            return None
        loaded = self.evaluate(pointer[2])
        self._pass_barrier()
        return loaded

    def _apply_subgroup_function(self, name: str, x: Any, other: Any = 0) -> Any:
        """Subgroup functions; a lane that is off takes no part."""
        if not self.mask.all():
            raise DataRace(f"{name} where some lanes are off")
        return self.subgroups.apply(name, np.broadcast_to(x, self.lanes.shape), other)

    def _apply_atomic(self, name: str, arguments: Sequence[Node]) -> Any:
        place = arguments[0][2]  # behind the &
        cells: Any = np.zeros(len(self.lanes), int)
        if place[0] == "at":
            place, cells = (
                place[1],
                np.broadcast_to(self.evaluate(place[2]), cells.shape),
            )
        array = self.shared[place[1]]
        operands = [
            np.broadcast_to(self.evaluate(a), cells.shape) for a in arguments[1:]
        ]
        out = np.zeros(len(self.lanes), array.values.dtype)
        for lane in np.flatnonzero(self.mask):
            cell = int(cells[lane])
            out[lane] = array.values[cell]
            if name == "atomicStore":
                array.values[cell] = operands[0][lane]
            elif name == "atomicAdd":
                array.values[cell] += operands[0][lane]
            elif name == "atomicMax":
                array.values[cell] = max(array.values[cell], operands[0][lane])
        return out

    # --- memory -------------------------------------------------------------------

    def _checked_cells(self, name: str, index: Any, size: int) -> Any:
        cells = np.broadcast_to(np.asarray(index), self.lanes.shape).astype(np.int64)
        active_cells = cells[self.mask]
        if active_cells.size and (active_cells.min() < 0 or active_cells.max() >= size):
            bad = active_cells[(active_cells < 0) | (active_cells >= size)][0]
            raise DataRace(f"{name}[{bad}] lies outside of its {size} cells")
        return np.where(self.mask, cells, 0)

    def _load(self, name: str, index: Any) -> Any:
        array = self.shared[name]
        cells = self._checked_cells(name, index, len(array.values))
        array.record_access(cells[self.mask], self.lanes[self.mask], False)
        count_bank_conflicts(self.counts, cells, self.mask, _vector_width(array.values))
        loaded = array.values[cells]
        return tuple(loaded.T) if loaded.ndim > 1 else loaded

    def _store(self, target: Node, new: Any) -> None:
        component = None
        if target[0] == "at" and target[1][0] == "at":
            component, target = self.evaluate(target[2]), target[1]
        name = target[1] if target[0] == "id" else target[1][1]
        index = np.uint32(0) if target[0] == "id" else self.evaluate(target[2])
        if name in self.storage:
            self._store_storage(name, index, new)
            return
        array = self.shared[name]
        cells = self._checked_cells(name, index, len(array.values))
        array.record_access(cells[self.mask], self.lanes[self.mask], True)
        count_bank_conflicts(self.counts, cells, self.mask, _vector_width(array.values))
        if component is None:
            self._store_active(array.values, cells, new)
        else:  # may write the whole vector back, so the cell is this lane's alone
            mask, parts = self.mask, np.broadcast_to(component, cells.shape)
            array.values[cells[mask], parts[mask]] = np.broadcast_to(new, cells.shape)[
                mask
            ]

    def _store_active(self, values: Any, cells: Any, new: Any) -> None:
        mask = self.mask
        parts = new if isinstance(new, tuple) else (new,)
        for k, part in enumerate(parts):
            column = values[:, k] if values.ndim > 1 else values
            column[cells[mask]] = np.broadcast_to(part, self.lanes.shape)[mask]

    def _load_storage(self, name: str, index: Any) -> Any:
        array = self.storage[name]
        cells = self._checked_cells(name, index, len(array))
        count_sectors(self.counts, cells, self.mask, _vector_width(array))
        loaded = array[cells]
        return tuple(loaded.T) if loaded.ndim > 1 else loaded

    def _store_storage(self, name: str, index: Any, new: Any) -> None:
        array = self.storage[name]
        cells = self._checked_cells(name, index, len(array))
        active_cells = cells[self.mask]
        if len(np.unique(active_cells)) < len(active_cells):
            raise DataRace(f"{name}: two lanes write one element")
        count_sectors(self.counts, cells, self.mask, _vector_width(array))
        self._store_active(array, cells, new)


def _vector_width(values: Any) -> int:
    return values.shape[1] if values.ndim > 1 else 1
