"""WGSL of a fused row reduction, from which `row_reduction_dispatch.py` makes a
dispatch.

Values of one element are named where they are met on a walk, values of one line before
and between the walks. A reduction is kept in two parts, one for a block of the line and
one for all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlxweb.codegen.elementwise_wgsl import (
    index_lines,
    literal_operand,
    substitute_expression,
)
from rlxweb.codegen.row_kernel import RowKernel
from rlxweb.codegen.wgsl_entry_point import MAIN_LINES
from rlxweb.codegen.wgsl_module import TYPE_ALIASES
from rlxweb.ir.graph import Node
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import Expr, wrap_u32
from rlxweb.ir.op import registry
from rlxweb.ir.row_reduction_pattern import reduction_kind

_BLOCK_LENGTH = 64
"""Elements that one invocation adds up in sequence: a float sum of n carries the
rounding of _BLOCK_LENGTH + n / _BLOCK_LENGTH additions.
"""
_IDENTITIES = {
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
_COMBINE_EXPRESSIONS = {"sum": "{} + {}", "prod": "{} * {}"}
_EXTREME_FUNCTIONS = {"max": ("larger", "max"), "min": ("smaller", "min")}


class RowReductionWgsl:
    """WGSL generator of one pass over rows.

    parts  the operands' and the result's axes before a line's, and a line's
    is_vec4  which of them are moved in fours
    """

    def __init__(
        self,
        kernel: RowKernel,
        parts: tuple[Sequence[Layout], Sequence[Layout]],
        is_vec4: Sequence[bool],
        lanes: int,
    ) -> None:
        self.kernel, self.graph, self.lanes = kernel, kernel.graph, lanes
        self.outer_layouts, self.row_layouts = parts
        self.is_vec4, self.uses_vec4 = is_vec4, any(is_vec4)
        self.out_index = len(self.outer_layouts) - 1
        self.names = {node.id: f"v{k}" for k, node in enumerate(kernel.nodes)}
        iterations = kernel.rows.row_length // (4 if self.uses_vec4 else 1)
        self.uniforms: dict[str, int | float] = {"line": iterations}
        self.includes: dict[str, None] = {}
        # (kind, type) of the reductions that lanes do together.
        self.shared_reductions: dict[tuple[str, str], None] = {}
        self.computed_names: dict[int, str] = {}
        self.literal_names: dict[int, str] = {}

    def build_source(self) -> str:
        """Return the whole shader body."""
        body = [
            *MAIN_LINES,
            *index_lines(len(self.outer_layouts[0].shape), 1),
            f"  let lane = {'lid' if self.lanes > 1 else '0u'};",
            *self._row_starts(),
            *self._row_statements(0),
        ]
        for walk in range(1, self.kernel.walk_count + 1):
            body += [*self._reduction_walk(walk), *self._row_statements(walk)]
        is_per_element = self.kernel.is_per_element
        body += self._store_elements() if is_per_element else self._store_row_value()
        return "\n".join([*self._workgroup_reductions(), *body, "}"])

    def _row_starts(self) -> list[str]:
        """Return the WGSL of each operand's row start, and the loads of values that are
        one per row.
        """
        lines = []
        for k, layout in enumerate(self.outer_layouts):
            terms = []
            for a, stride in enumerate(layout.strides):
                if stride:
                    step = stride // 4 if self.is_vec4[k] else stride
                    self.uniforms[f"s{k}_{a}"] = wrap_u32(step)
                    terms.append(f"i{a} * u.s{k}_{a}")
            lines.append(f"  let b{k} = {' + '.join(terms) or '0u'};")
        for k in range(self.out_index):
            if not self._varies_along_row(k):
                lines.append(f"  let r{k} = {self._load_wgsl(k, f'b{k}')};")
        return lines

    def _load_wgsl(self, k: int, element: str) -> str:
        """Return the WGSL load of an operand at an index; as vec4, a value that is one
        per row is repeated four times.
        """
        load = f"ld{k}({element})"
        if self.uses_vec4 and not self.is_vec4[k]:
            dtype = self.graph.node(self.kernel.reads[k][0]).type.dtype
            return f"{TYPE_ALIASES[dtype]}({load})"
        return load

    def _varies_along_row(self, k: int) -> bool:
        """Return whether an operand has more than one element in a row."""
        return any(self.row_layouts[k].strides)

    def _element_index(self, k: int) -> str:
        """Return the WGSL index of an operand's element at position j of the row."""
        layout, terms = self.row_layouts[k], [f"b{k}"]
        is_one_axis = len(layout.strides) == 1
        for a, stride in enumerate(layout.strides):
            if stride:
                position = "j" if is_one_axis else f"j{a}"
                if stride != 1:
                    self.uniforms[f"t{k}_{a}"] = wrap_u32(stride)
                    position = f"{position} * u.t{k}_{a}"
                terms.append(position)
        return " + ".join(terms)

    def _operand_name(self, reader: Node, node_id: int) -> str:
        """Return the name of a value that a node reads."""
        node = self.graph.node(node_id)
        if node_id in self.computed_names:
            return self.computed_names[node_id]
        if node.is_literal:
            if node_id not in self.literal_names:
                self.literal_names[node_id] = literal_operand(node, self.uniforms)
            return self.literal_names[node_id]
        return f"r{self.kernel.read_index(reader, node_id)}"

    def _node_statement(self, node: Node) -> list[str]:
        """Return the statement of an elementwise node; a view only adds another
        name.
        """
        lower = registry.get(node.op).lower
        operands = [self._operand_name(node, i) for i in node.inputs]
        if not isinstance(lower, Expr):
            self.computed_names[node.id] = operands[0]
            return []
        operand_types = tuple(self.graph.node(i).type for i in node.inputs)
        types = (operand_types, node.type)
        text = substitute_expression(
            lower,
            operands,
            [operand_type.dtype for operand_type in operand_types],
            node,
            types,
        )
        self.computed_names[node.id] = self.names[node.id]
        self.includes |= dict.fromkeys(lower.uses)
        return [f"let {self.names[node.id]} = {text};"]

    def _row_statements(self, walk: int) -> list[str]:
        """Return the statements of values that are one per row and known after so many
        walks.
        """
        return [
            f"  {line}"
            for node in self.kernel.row_nodes(walk)
            for line in self._node_statement(node)
        ]

    def _element_statements(self, requested: Sequence[int]) -> list[str]:
        """Return loads and statements that compute the requested nodes of one element,
        at position j.
        """
        nodes, used = self.kernel.element_nodes(requested, self.computed_names)
        rank, statements = len(self.row_layouts[0].strides), list[str]()
        if rank > 1:
            statements.append("var rest = j;")
            for a in range(rank - 1, 0, -1):
                statements.append(f"let j{a} = rest % u.l{a}; rest = rest / u.l{a};")
            statements.append("let j0 = rest;")
        for k, (node_id, lacks_axes) in enumerate(self.kernel.reads):
            if node_id in used and not lacks_axes and self._varies_along_row(k):
                statements.append(
                    f"let r{k} = {self._load_wgsl(k, self._element_index(k))};"
                )
        for node in nodes:
            statements += self._node_statement(node)
        return statements

    def _reduction_walk(self, walk: int) -> list[str]:
        """Return the WGSL of one walk along the row that does some reductions, in
        blocks.
        """
        reductions = self.kernel.fold_nodes(walk)
        names_before = dict(self.computed_names)
        element = self._element_statements([node.inputs[0] for node in reductions])
        starts, parts, combines, after = (list[str]() for _ in range(4))
        for node in reductions:
            name, kind = self.names[node.id], reduction_kind(node)
            alias = TYPE_ALIASES[node.type.dtype]
            start = f": {alias} = {_IDENTITIES[kind, alias]};"
            part, value = f"p{name}", self._operand_name(node, node.inputs[0])
            starts.append(f"  var f{name}{start}")
            parts.append(f"    var {part}{start}")
            element.append(f"{part} = {self._combine(kind, alias, part, value)};")
            combined = self._combine(kind, alias, f"f{name}", part)
            combines.append(f"    f{name} = {combined};")
            after += self._finish_reduction(kind, alias, name)
        self.computed_names = names_before | {
            node.id: self.names[node.id] for node in reductions
        }
        block = _BLOCK_LENGTH * self.lanes
        return [
            *starts,
            f"  for (var head = 0u; head < u.line; head += {block}u) {{",
            f"    let end = min(head + {block}u, u.line);",
            *parts,
            f"    for (var j = head + lane; j < end; j += {self.lanes}u) {{",
            *(f"      {line}" for line in element),
            "    }",
            *combines,
            "  }",
            *after,
        ]

    def _finish_reduction(self, kind: str, alias: str, name: str) -> list[str]:
        """Return the WGSL that combines the partial results of vec4 elements and lanes
        into the whole row's.
        """
        lines, result = list[str](), f"f{name}"
        if self.uses_vec4:  # each with the one opposite, then with its neighbour
            pair_sum = self._combine(kind, alias, result, f"{result}.zwxy")
            lines.append(f"  let two{name} = {pair_sum};")
            result = self._combine(kind, alias, f"two{name}", f"two{name}.yxwz")
        if self.lanes > 1:
            self.shared_reductions[kind, alias] = None
            result = f"together_{kind}_{alias}(lid, {result})"
        return [*lines, f"  let {name} = {result};"]

    def _combine(self, kind: str, alias: str, a: str, b: str) -> str:
        """Return the WGSL that combines two values of a reduction."""
        if kind in _COMBINE_EXPRESSIONS:
            return _COMBINE_EXPRESSIONS[kind].format(a, b)
        float_function, integer_function = _EXTREME_FUNCTIONS[kind]
        if alias == "F":
            self.includes["nan"] = None
        return f"{float_function if alias == 'F' else integer_function}({a}, {b})"

    def _store_elements(self) -> list[str]:
        """Return the last walk, which stores a value for each element."""
        element = self._element_statements([self.kernel.result.id])
        value = self.computed_names[self.kernel.result.id]
        element.append(
            f"st{self.out_index}({self._element_index(self.out_index)}, {value});"
        )
        return [
            f"  for (var j = lane; j < u.line; j += {self.lanes}u) {{",
            *(f"    {line}" for line in element),
            "  }",
        ]

    def _store_row_value(self) -> list[str]:
        """Return the WGSL that stores one value for each row."""
        name = self.computed_names[self.kernel.result.id]
        value = f"{name}.x" if self.uses_vec4 else name
        store = f"st{self.out_index}(b{self.out_index}, {value});"
        return [f"  {store}" if self.lanes == 1 else f"  if (lid == 0u) {{ {store} }}"]

    def _workgroup_reductions(self) -> list[str]:
        """Return the WGSL functions that reduce the values of a workgroup's lanes."""
        lines = []
        for kind, alias in self.shared_reductions:
            name = f"{kind}_{alias}"
            pair = f"all_{name}[lid]", f"all_{name}[lid + half]"
            combined = self._combine(kind, alias, *pair)
            lines += [
                f"var<workgroup> all_{name}: array<{alias}, {self.lanes}>;",
                f"fn together_{name}(lid: u32, v: {alias}) -> {alias} {{",
                f"  all_{name}[lid] = v;",
                "  workgroupBarrier();",
                f"  for (var half = {self.lanes // 2}u; half > 0u; half /= 2u) {{",
                f"    if (lid < half) {{ all_{name}[lid] = {combined}; }}",
                "    workgroupBarrier();",
                "  }",
                f"  let whole = all_{name}[0];",
                "  workgroupBarrier();",
                "  return whole;",
                "}",
            ]
        return lines
