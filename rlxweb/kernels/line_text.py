"""The text of a pass along lines: what `lines.py` makes a call of.

Values of one element are named where they are met on a walk, values of one line before
and between the walks. A reduction is kept in two parts, one for a block of the line and
one for all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlxweb.errors import GraphError
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.layout import Layout
from rlxweb.ir.lines import Level, Lines, reads_in
from rlxweb.ir.lowering import Expr, Kernel, View, wrapped
from rlxweb.ir.op import registry
from rlxweb.kernels.expression import expression, indices, literal_operand
from rlxweb.kernels.source import ALIAS
from rlxweb.recipes.entry import MAIN_LINES

_BLOCK = 64
"""Elements that one invocation takes in a row: a float sum of n carries the rounding of
_BLOCK + n / _BLOCK additions."""
_STARTS = {
    ("sum", "F"): "F(0.0)",
    ("sum", "I"): "I(0i)",
    ("sum", "U"): "U(0u)",
    ("prod", "F"): "F(1.0)",
    ("prod", "I"): "I(1i)",
    ("prod", "U"): "U(1u)",
    ("max", "F"): "-inf_where(B(true), F(0.0))",
    ("max", "I"): "I(-2147483647i - 1i)",
    ("max", "U"): "U(0u)",
    ("min", "F"): "inf_where(B(true), F(0.0))",
    ("min", "I"): "I(2147483647i)",
    ("min", "U"): "U(4294967295u)",
}
_COMBINED = {"sum": "{} + {}", "prod": "{} * {}"}
_EXTREMES = {"max": ("larger", "max"), "min": ("smaller", "min")}


class LineText:
    """The text of one pass.

    parts  the operands' and the result's axes before a line's, and a line's
    wide   which of them are moved in fours
    """

    def __init__(
        self,
        graph: Graph,
        lines: Lines,
        ids: Sequence[int],
        parts: tuple[Sequence[Layout], Sequence[Layout]],
        wide: Sequence[bool],
        lanes: int,
    ) -> None:
        self.nodes = {at: graph.node(at) for at in ids}
        self.graph, self.lines, self.lanes = graph, lines, lanes
        self.kept, self.along = parts
        self.wide, self.fours = wide, any(wide)
        self.out, self.last = len(self.kept) - 1, ids[-1]
        self.reads = reads_in(graph, lines, ids)
        self.levels = {at: self._level(node) for at, node in self.nodes.items()}
        self.depth = self._depths()
        self.names = {at: f"v{place}" for place, at in enumerate(ids)}
        turns = lines.length // (4 if self.fours else 1)
        self.values: dict[str, int | float] = {"line": turns}
        self.uses: dict[str, None] = {}
        # (kind, type) of the reductions that lanes do together.
        self.shared: dict[tuple[str, str], None] = {}
        self.known: dict[int, str] = {}
        self.literals: dict[int, str] = {}

    @property
    def walks(self) -> int:
        """How often a line is walked for reductions."""
        return max(self.depth.values())

    def _level(self, node: Node) -> Level:
        level = self.lines.level(self.graph, node)
        if level is None:
            raise GraphError(str(node), "it is not computed along the lines")
        return level

    def _depths(self) -> dict[int, int]:
        """How many walks must be over for a node; of a reduction, its own too."""
        deep: dict[int, int] = {}
        for at, node in self.nodes.items():
            before = max((deep.get(i, 0) for i in node.inputs), default=0)
            deep[at] = before + (self.levels[at] == "fold")
        return deep

    def source(self, is_whole: bool) -> str:
        """All of it. is_whole: the result has a value for each element."""
        body = [
            *MAIN_LINES,
            *indices(len(self.kept[0].shape), 1),
            f"  let lane = {'lid' if self.lanes > 1 else '0u'};",
            *self._begins(),
            *self._rows(0),
        ]
        for walk in range(1, self.walks + 1):
            body += [*self._walk(walk), *self._rows(walk)]
        body += self._stored() if is_whole else self._one_stored()
        return "\n".join([*self._together(), *body, "}"])

    def _begins(self) -> list[str]:
        """Where each operand's line begins; what is one for each line, and the result,
        is read and stored there.
        """
        made = []
        for k, layout in enumerate(self.kept):
            terms = []
            for a, stride in enumerate(layout.strides):
                if stride:
                    step = stride // 4 if self.wide[k] else stride
                    self.values[f"s{k}_{a}"] = wrapped(step)
                    terms.append(f"i{a} * u.s{k}_{a}")
            made.append(f"  let b{k} = {' + '.join(terms) or '0u'};")
        for k in range(self.out):
            if not self._moves(k):
                made.append(f"  let r{k} = {self._load(k, f'b{k}')};")
        return made

    def _load(self, k: int, place: str) -> str:
        """An operand there; in fours, of one that does not move four times the same."""
        load = f"ld{k}({place})"
        if self.fours and not self.wide[k]:
            kind = self.graph.node(self.reads[k][0]).type.dtype
            return f"{ALIAS[kind]}({load})"
        return load

    def _moves(self, k: int) -> bool:
        """Has an operand more than one element in a line?"""
        return any(self.along[k].strides)

    def _place(self, k: int) -> str:
        """The element of an operand at position j of the line."""
        layout, terms = self.along[k], [f"b{k}"]
        one = len(layout.strides) == 1
        for a, stride in enumerate(layout.strides):
            if stride:
                at = "j" if one else f"j{a}"
                if stride != 1:
                    self.values[f"t{k}_{a}"] = wrapped(stride)
                    at = f"{at} * u.t{k}_{a}"
                terms.append(at)
        return " + ".join(terms)

    def _operand(self, reader: Node, at: int) -> str:
        """The name of what a node reads."""
        node = self.graph.node(at)
        if at in self.known:
            return self.known[at]
        if node.is_literal:
            if at not in self.literals:
                self.literals[at] = literal_operand(node, self.values)
            return self.literals[at]
        return f"r{self.reads.index((at, self.lines.is_bare(reader)))}"

    def _let(self, at: int) -> list[str]:
        """The statement of an elementwise node; a view is another name."""
        node = self.nodes[at]
        lower = registry.get(node.op).lower
        operands = [self._operand(node, i) for i in node.inputs]
        if not isinstance(lower, Expr):
            self.known[at] = operands[0]
            return []
        kinds = tuple(self.graph.node(i).type for i in node.inputs)
        types = (kinds, node.type)
        text = expression(lower, operands, [k.dtype for k in kinds], node, types)
        self.known[at] = self.names[at]
        self.uses |= dict.fromkeys(lower.uses)
        return [f"let {self.names[at]} = {text};"]

    def _rows(self, walk: int) -> list[str]:
        """What is one for each line and can be computed after so many walks."""
        made: list[str] = []
        for at, node in self.nodes.items():
            is_view = isinstance(registry.get(node.op).lower, View)
            is_row = self.levels[at] == "row" or is_view
            if is_row and self.depth[at] == walk:
                made += [f"  {line}" for line in self._let(at)]
        return made

    def _element(self, wanted: Sequence[int]) -> list[str]:
        """Loads and statements for what is wanted of one element, at position j."""
        needed, asked = set[int](), list(wanted)
        read = {(at, False) for at in wanted}
        while asked:
            at = asked.pop()
            if self.levels.get(at) == "line" and not {at} & (needed | set(self.known)):
                needed.add(at)
                asked += self.nodes[at].inputs
                read |= {(i, False) for i in self.nodes[at].inputs}
        rank, made = len(self.along[0].strides), list[str]()
        if rank > 1:
            made.append("var rest = j;")
            for a in range(rank - 1, 0, -1):
                made.append(f"let j{a} = rest % u.l{a}; rest = rest / u.l{a};")
            made.append("let j0 = rest;")
        for k, one in enumerate(self.reads):
            if one in read and self._moves(k):
                made.append(f"let r{k} = {self._load(k, self._place(k))};")
        for at in sorted(needed):
            made += self._let(at)
        return made

    def _walk(self, walk: int) -> list[str]:
        """Some reductions, in one walk along the line, in blocks."""
        folds = [
            node
            for at, node in self.nodes.items()
            if self.levels[at] == "fold" and self.depth[at] == walk
        ]
        before = dict(self.known)
        element = self._element([node.inputs[0] for node in folds])
        starts, parts, joined, after = (list[str]() for _ in range(4))
        for node in folds:
            name, kind = self.names[node.id], _folds(node)
            own = ALIAS[node.type.dtype]
            start = f": {own} = {_STARTS[kind, own]};"
            part, value = f"p{name}", self._operand(node, node.inputs[0])
            starts.append(f"  var f{name}{start}")
            parts.append(f"    var {part}{start}")
            element.append(f"{part} = {self._combined(kind, own, part, value)};")
            whole = self._combined(kind, own, f"f{name}", part)
            joined.append(f"    f{name} = {whole};")
            after += self._whole(kind, own, name)
        self.known = before | {node.id: self.names[node.id] for node in folds}
        block = _BLOCK * self.lanes
        return [
            *starts,
            f"  for (var head = 0u; head < u.line; head += {block}u) {{",
            f"    let end = min(head + {block}u, u.line);",
            *parts,
            f"    for (var j = head + lane; j < end; j += {self.lanes}u) {{",
            *(f"      {line}" for line in element),
            "    }",
            *joined,
            "  }",
            *after,
        ]

    def _whole(self, kind: str, own: str, name: str) -> list[str]:
        """What an invocation has of a line becomes all there is of it."""
        made, result = list[str](), f"f{name}"
        if self.fours:  # each with the one opposite, then with its neighbour
            two = self._combined(kind, own, result, f"{result}.zwxy")
            made.append(f"  let two{name} = {two};")
            result = self._combined(kind, own, f"two{name}", f"two{name}.yxwz")
        if self.lanes > 1:
            self.shared[kind, own] = None
            result = f"together_{kind}_{own}(lid, {result})"
        return [*made, f"  let {name} = {result};"]

    def _combined(self, kind: str, own: str, a: str, b: str) -> str:
        if kind in _COMBINED:
            return _COMBINED[kind].format(a, b)
        floats, others = _EXTREMES[kind]
        if own == "F":
            self.uses["nan"] = None
        return f"{floats if own == 'F' else others}({a}, {b})"

    def _stored(self) -> list[str]:
        """The last walk: a value for each element."""
        element = self._element([self.last])
        value = self.known[self.last]
        element.append(f"st{self.out}({self._place(self.out)}, {value});")
        return [
            f"  for (var j = lane; j < u.line; j += {self.lanes}u) {{",
            *(f"    {line}" for line in element),
            "  }",
        ]

    def _one_stored(self) -> list[str]:
        value = f"{self.known[self.last]}{'.x' if self.fours else ''}"
        store = f"st{self.out}(b{self.out}, {value});"
        return [f"  {store}" if self.lanes == 1 else f"  if (lid == 0u) {{ {store} }}"]

    def _together(self) -> list[str]:
        """The functions that reduce what the lanes of a workgroup have."""
        made = []
        for kind, own in self.shared:
            name = f"{kind}_{own}"
            pair = f"all_{name}[lid]", f"all_{name}[lid + half]"
            both = self._combined(kind, own, *pair)
            made += [
                f"var<workgroup> all_{name}: array<{own}, {self.lanes}>;",
                f"fn together_{name}(lid: u32, v: {own}) -> {own} {{",
                f"  all_{name}[lid] = v;",
                "  workgroupBarrier();",
                f"  for (var half = {self.lanes // 2}u; half > 0u; half /= 2u) {{",
                f"    if (lid < half) {{ all_{name}[lid] = {both}; }}",
                "    workgroupBarrier();",
                "  }",
                f"  let whole = all_{name}[0];",
                "  workgroupBarrier();",
                "  return whole;",
                "}",
            ]
        return made


def _folds(node: Node) -> str:
    """What a node reduces by; "" where it reduces nothing."""
    lower = registry.get(node.op).lower
    return lower.folds if isinstance(lower, Kernel) else ""
