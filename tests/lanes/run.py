"""Runs one workgroup of a WGSL kernel in NumPy, a lane an element, and counts.

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

from tests.lanes.arithmetic import FUNCTIONS, OPERATORS, mapped, number
from tests.lanes.memory import Counts, Race, Shared, conflicts, moved
from tests.lanes.parse import Function, Module, Node, parse
from tests.lanes.subgroups import Subgroups
from tests.lanes.types import SCALARS, Types

POISON = 0x7FE0_7FE1


@dataclass(slots=True)
class Frame:
    """A call: its names, the lanes that returned or left the loop, what they return."""

    names: dict[str, Any] = field(default_factory=dict)
    gone: Any = None
    left: Any = None
    skips: Any = None
    result: Any = None


class Workgroup:
    """One workgroup of `main`."""

    def __init__(
        self,
        text: str,
        lanes: int,
        uniforms: Mapping[str, float],
        storage: Sequence[Any],
        group: int = 0,
        subgroups: Subgroups | None = None,
        constants: Mapping[str, int] | None = None,
    ) -> None:
        self._values = {
            name.removeprefix("_value_"): getattr(self, name)
            for name in dir(Workgroup)
            if name.startswith("_value_")
        }
        self.module: Module = parse(text)
        self.globals: dict[str, Any] = {}
        self.types = Types(self.module, self.globals)
        self.lanes = np.arange(lanes)
        self.subgroups = subgroups or Subgroups()
        self.counts = Counts()
        self.uniforms = {
            name: SCALARS[self.types.plain(kind)](uniforms[name])
            for name, kind in self.module.uniforms.items()
        }
        self.storage = dict(zip(self.module.storage, storage, strict=True))
        chosen = {"WG": lanes, **(constants or {})}
        self.mask = np.ones(lanes, bool)
        self.frame = Frame({}, *(np.zeros(lanes, bool) for _ in range(3)))
        for name, value in self.module.overrides.items():
            self.globals[name] = np.uint32(chosen.get(name, self.value(value)))
        for name, (_, value) in self.module.constants.items():
            self.globals[name] = self.value(value)
        for name, kind in self.module.private.items():
            self.globals[name] = self.types.zero(kind)
        self.shared: dict[str, Shared] = {}
        for name, kind in self.module.shared.items():
            self.shared[name] = Shared(name, self.types.room(kind))
            self.shared[name].values.view(np.uint32)[...] = POISON
        self.group = group

    def run(self) -> Counts:
        """Runs `main` to its end. Errors  Race."""
        zero = np.uint32(0)
        main = self.module.functions["main"]
        given = {
            "wid": (np.uint32(self.group), zero, zero),
            "nwg": (np.uint32(1 << 20), np.uint32(1), np.uint32(1)),
            "lid": self.lanes.astype(np.uint32),
        }
        names = [name for name, _ in main.parameters]
        with np.errstate(all="ignore"):
            self._call(main, [self._builtin(name, given) for name in names])
        return self.counts

    def _builtin(self, name: str, given: Mapping[str, Any]) -> Any:
        return given[name] if name in given else self.subgroups.told(name, self.lanes)

    # --- statements ---------------------------------------------------------------

    def _call(self, function: Function, arguments: Sequence[Any]) -> Any:
        names = {
            name: value
            for (name, _), value in zip(function.parameters, arguments, strict=True)
        }
        before, mask = self.frame, self.mask
        none = np.zeros(len(self.lanes), bool)
        self.frame = Frame(names, none, none, none)
        self._body(function.body)
        result, self.frame, self.mask = self.frame.result, before, mask
        return result

    def _body(self, body: Sequence[Node]) -> None:
        for one in body:
            if not self.mask.any():
                return
            getattr(self, f"_{one[0]}")(*one[1:])

    def _block(self, body: Sequence[Node]) -> None:
        self._body(body)

    def _let(self, name: str, kind: Any, value: Node) -> None:
        self.frame.names[name] = self.types.typed(kind, self.value(value))

    def _var(self, name: str, kind: Any, value: Node | None) -> None:
        if value is None:
            found = self.types.zero(kind)
        else:
            found = self.types.typed(kind, self.value(value))
        self.frame.names[name] = found

    def _set(self, target: Node, op: str, value: Node) -> None:
        new = self.value(value)
        if op != "=":
            new = self._binary(op[:-1], self.value(target), new)
        if target[0] == "id" and target[1] not in self.shared:
            local = target[1] in self.frame.names
            names = self.frame.names if local else self.globals
            names[target[1]] = self._where(new, names[target[1]])
        elif target[0] == "of":
            whole = self.frame.names[target[1][1]]
            self.frame.names[target[1][1]] = self._with(whole, target[2], new)
        else:
            self._store(target, new)

    def _with(self, whole: Any, member: str, new: Any) -> Any:
        if isinstance(whole, dict):
            return {**whole, member: self._where(new, whole[member])}
        at = "xyzw".index(member)
        return (*whole[:at], self._where(new, whole[at]), *whole[at + 1 :])

    def _where(self, new: Any, old: Any) -> Any:
        if isinstance(old, dict):
            return {name: self._where(new[name], old[name]) for name in old}
        if isinstance(old, tuple):
            return tuple(self._where(n, o) for n, o in zip(new, old, strict=True))
        kind = getattr(old, "dtype", None) or getattr(new, "dtype", None)
        return np.where(self.mask, new, old).astype(kind)

    def _do(self, call: Node) -> None:
        self.value(call)

    def _if(self, condition: Node, then: Sequence[Node], other: Sequence[Node]) -> None:
        before, yes = self.mask, np.broadcast_to(self.value(condition), self.mask.shape)
        for mask, body in ((before & yes, then), (before & ~yes, other)):
            self.mask = mask & ~self.frame.gone
            self._body(body)
        self.mask = before & ~(self.frame.gone | self.frame.left | self.frame.skips)

    def _for(
        self, first: Node | None, condition: Node, after: Node | None, body: Any
    ) -> None:
        before, left, skips = self.mask, self.frame.left, self.frame.skips
        names = dict(self.frame.names)
        self.frame.left = left & False
        if first:
            self._body([first])
        running = self.mask
        while True:
            on = np.broadcast_to(self.value(condition), self.mask.shape)
            running = running & on
            if not running.any():
                break
            self.mask, self.frame.skips = running, running & False
            self._body(body)
            running = running & ~(self.frame.gone | self.frame.left)
            self.mask = running
            if after:
                self._body([after])
        self.frame.left, self.frame.skips = left, skips
        self.mask = before & ~(self.frame.gone | left)
        # What was declared inside is gone, what was changed inside stays.
        self.frame.names = {k: self.frame.names[k] for k in names}

    def _break(self) -> None:
        self.frame.left = self.frame.left | self.mask
        self.mask = self.mask & False

    def _continue(self) -> None:
        self.frame.skips = self.frame.skips | self.mask
        self.mask = self.mask & False

    def _return(self, value: Node | None) -> None:
        if value is not None:
            found = self.value(value)
            old = self.frame.result
            self.frame.result = found if old is None else self._where(found, old)
        self.frame.gone = self.frame.gone | self.mask
        self.mask = self.mask & False

    # --- expressions --------------------------------------------------------------

    def value(self, node: Node) -> Any:
        return self._values[node[0]](*node[1:])

    def _value_num(self, text: str | int) -> Any:
        return number(text)

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
        found = self.value(x)
        if isinstance(found, tuple):
            return tuple(-v for v in found)
        return {"-": neg, "!": np.logical_not, "~": np.invert}[op](found)

    def _value_bin(self, op: str, x: Node, y: Node) -> Any:
        return self._binary(op, self.value(x), self.value(y))

    def _binary(self, op: str, x: Any, y: Any) -> Any:
        if isinstance(x, tuple) or isinstance(y, tuple):
            size = len(x) if isinstance(x, tuple) else len(y)
            xs = x if isinstance(x, tuple) else (x,) * size
            ys = y if isinstance(y, tuple) else (y,) * size
            return tuple(self._binary(op, a, b) for a, b in zip(xs, ys, strict=True))
        self.counts.operations += 1
        return OPERATORS[op](x, y)

    def _value_of(self, x: Node, member: str) -> Any:
        if x == ("id", "u"):
            return self.uniforms[member]
        found = self.value(x)
        if isinstance(found, dict):
            return found[member]
        picked = tuple(found["xyzw".index(c)] for c in member)
        return picked[0] if len(picked) == 1 else picked

    def _value_at(self, array: Node, index: Node) -> Any:
        at = self.value(index)
        if array[0] == "id" and array[1] in self.shared:
            return self._load(array[1], at)
        if array[0] == "id" and array[1] in self.storage:
            return self._read(array[1], at)
        return self.value(array)[int(at)]

    def _value_call(self, name: str, kinds: Any, arguments: Sequence[Node]) -> Any:
        function = self.module.functions.get(name)
        if function is not None:
            return self._call(function, [self.value(a) for a in arguments])
        if name in self.module.structs:
            given = [self.value(a) for a in arguments]
            return dict(zip(self.module.structs[name], given, strict=True))
        if name.startswith("workgroup"):
            return self._barrier(*arguments)
        if name.startswith("atomic"):
            return self._atomic(name, arguments)
        given = [self.value(a) for a in arguments]
        if name.startswith("subgroup"):
            return self._across(name, *given)
        name = self.types.plain(name)
        if isinstance(name, tuple):
            name, *kinds = name
        if name in SCALARS:
            return np.asarray(given[0] if given else 0).astype(SCALARS[name])
        if name in ("vec2", "vec3", "vec4"):
            return self.types.vector(int(name[-1]), self.types.plain(kinds[0]), given)
        if name == "bitcast":
            return self.types.bits(self.types.plain(kinds[0]), given[0])
        self.counts.operations += 1
        return mapped(FUNCTIONS[name], given)

    # --- lanes together -----------------------------------------------------------

    def _barrier(self, pointer: Node | None = None) -> Any:
        """workgroupBarrier, or workgroupUniformLoad: a read between two of them."""
        if not self.mask.all():
            raise Race("a barrier that some lanes do not reach")
        self.counts.barriers += 1
        for one in self.shared.values():
            one.forget()
        if pointer is None:
            return None
        found = self.value(pointer[2])
        self._barrier()
        return found

    def _across(self, name: str, x: Any, other: Any = 0) -> Any:
        """Subgroup functions; a lane that is off takes no part."""
        if not self.mask.all():
            raise Race(f"{name} where some lanes are off")
        return self.subgroups.across(name, np.broadcast_to(x, self.lanes.shape), other)

    def _atomic(self, name: str, arguments: Sequence[Node]) -> Any:
        place = arguments[0][2]  # behind the &
        at: Any = np.zeros(len(self.lanes), int)
        if place[0] == "at":
            place, at = place[1], np.broadcast_to(self.value(place[2]), at.shape)
        room = self.shared[place[1]]
        given = [np.broadcast_to(self.value(a), at.shape) for a in arguments[1:]]
        out = np.zeros(len(self.lanes), room.values.dtype)
        for lane in np.flatnonzero(self.mask):
            cell = int(at[lane])
            out[lane] = room.values[cell]
            if name == "atomicStore":
                room.values[cell] = given[0][lane]
            elif name == "atomicAdd":
                room.values[cell] += given[0][lane]
            elif name == "atomicMax":
                room.values[cell] = max(room.values[cell], given[0][lane])
        return out

    # --- memory -------------------------------------------------------------------

    def _cells_of(self, name: str, at: Any, size: int) -> Any:
        cells = np.broadcast_to(np.asarray(at), self.lanes.shape).astype(np.int64)
        on = cells[self.mask]
        if on.size and (on.min() < 0 or on.max() >= size):
            bad = on[(on < 0) | (on >= size)][0]
            raise Race(f"{name}[{bad}] lies outside of its {size} cells")
        return np.where(self.mask, cells, 0)

    def _load(self, name: str, at: Any) -> Any:
        room = self.shared[name]
        cells = self._cells_of(name, at, len(room.values))
        room.touched(cells[self.mask], self.lanes[self.mask], False)
        conflicts(self.counts, cells, self.mask, _wide(room.values))
        found = room.values[cells]
        return tuple(found.T) if found.ndim > 1 else found

    def _store(self, target: Node, new: Any) -> None:
        part = None
        if target[0] == "at" and target[1][0] == "at":
            part, target = self.value(target[2]), target[1]
        name = target[1] if target[0] == "id" else target[1][1]
        at = np.uint32(0) if target[0] == "id" else self.value(target[2])
        if name in self.storage:
            self._write(name, at, new)
            return
        room = self.shared[name]
        cells = self._cells_of(name, at, len(room.values))
        room.touched(cells[self.mask], self.lanes[self.mask], True)
        conflicts(self.counts, cells, self.mask, _wide(room.values))
        if part is None:
            self._put(room.values, cells, new)
        else:  # may write the whole vector back, so the cell is this lane's alone
            on, parts = self.mask, np.broadcast_to(part, cells.shape)
            room.values[cells[on], parts[on]] = np.broadcast_to(new, cells.shape)[on]

    def _put(self, values: Any, cells: Any, new: Any) -> None:
        on = self.mask
        parts = new if isinstance(new, tuple) else (new,)
        for k, part in enumerate(parts):
            side = values[:, k] if values.ndim > 1 else values
            side[cells[on]] = np.broadcast_to(part, self.lanes.shape)[on]

    def _read(self, name: str, at: Any) -> Any:
        array = self.storage[name]
        cells = self._cells_of(name, at, len(array))
        moved(self.counts, cells, self.mask, _wide(array))
        found = array[cells]
        return tuple(found.T) if found.ndim > 1 else found

    def _write(self, name: str, at: Any, new: Any) -> None:
        array = self.storage[name]
        cells = self._cells_of(name, at, len(array))
        on = cells[self.mask]
        if len(np.unique(on)) < len(on):
            raise Race(f"{name}: two lanes write one element")
        moved(self.counts, cells, self.mask, _wide(array))
        self._put(array, cells, new)


def _wide(values: Any) -> int:
    return values.shape[1] if values.ndim > 1 else 1
