"""Shader text: finds `shaders/*.wgsl` and writes the prelude that goes before them.

The prelude declares bindings, the uniform record and the `ldN`/`stN` functions, so that
a shader file holds nothing but its algorithm and can never disagree with the host about
types, offsets or names. The ABI is described in `site/pages/concepts/shaders.md`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

from rlxweb.errors import GraphError
from rlxweb.ir.dtype import NARROW, DType
from rlxweb.ir.lowering import Call

STORED = {
    DType.F16: "f16",
    DType.F32: "f32",
    DType.I32: "i32",
    DType.U32: "u32",
    DType.BOOL: "u32",
    **dict.fromkeys(NARROW, "u32"),
}
COMPUTED = {
    **STORED,
    **dict.fromkeys(NARROW, "i32"),
    DType.BF16: "f32",
    DType.F16: "f32",
    DType.BOOL: "bool",
}
SCALARS = {"F": "f32", "I": "i32", "U": "u32", "B": "bool"}
ALIAS = {dtype: computed[0].upper() for dtype, computed in COMPUTED.items()}


@lru_cache(maxsize=256)
def shader_text(name: str) -> str:
    """The text of `shaders/NAME.wgsl`: inside the package first (wheels), then beside
    it (a checkout or an editable install).

    Errors   GraphError when there is no such file.
    """
    inside = resources.files("rlxweb") / "shaders" / f"{name}.wgsl"
    beside = Path(__file__).resolve().parents[2] / "shaders" / f"{name}.wgsl"
    for place in (inside, beside):
        if place.is_file():
            return place.read_text(encoding="utf-8")
    raise GraphError(
        f"shader '{name}'",
        "there is no such file in the package or beside the checkout",
        hint="a Kernel names a file of shaders/, or carries its text in `source`",
    )


@dataclass(frozen=True, slots=True)
class Binding:
    """How one access is bound: alone, or as part of the merged read-only buffer."""

    dtype: DType
    mode: str
    merged: bool = False
    wide: bool = False


def _binding_lines(bindings: Sequence[Binding], faults: bool) -> list[str]:
    lines, at = [], 0
    if any(b.merged for b in bindings):
        lines.append("@group(0) @binding(0) var<storage, read> merged: array<u32>;")
        at = 1
    for k, one in enumerate(bindings):
        if one.merged:
            continue
        mode = "read" if one.mode == "read" else "read_write"
        stored = STORED[one.dtype]
        stored = f"vec4<{stored}>" if one.wide else stored
        lines.append(
            f"@group(0) @binding({at}) var<storage, {mode}> a{k}: array<{stored}>;"
        )
        at += 1
    if faults:
        lines.append(
            f"@group(0) @binding({at}) var<storage, read_write> faulted: atomic<u32>;"
        )
        lines.append("fn fault(code: u32) { atomicMax(&faulted, code); }")
    return lines


def in_a_word(dtype: DType) -> int:
    """Elements that share a word of a buffer, where a word is what is moved."""
    return 4 // dtype.nbytes if dtype in NARROW else 1


def _unpacked(k: int, one: Binding) -> str:
    """`ldN` of an element that shares its word with others."""
    count, bits = in_a_word(one.dtype), 8 * one.dtype.nbytes
    words = "merged" if one.merged else f"a{k}"
    at = f"let at = u.base{k} + i;"
    word = f"let word = {words}[at >> {count.bit_length() - 1}u];"
    # The element's bits at the top of a word.
    top = f"let top = word << ({32 - bits}u - (at & {count - 1}u) * {bits}u);"
    value = f"i32(top >> {32 - bits}u)"
    if one.dtype is DType.BF16:
        value = "bitcast<f32>(top & 0xffff0000u)"
    elif not one.dtype.is_unsigned:
        value = f"bitcast<i32>(top) >> {32 - bits}u"
    kind = COMPUTED[one.dtype]
    return f"fn ld{k}(i: u32) -> {kind} {{ {at} {word} {top} return {value}; }}"


def _packed(k: int, one: Binding) -> str:
    """`stN` of the word in which element i is the first, and `partN` of an element as
    what it puts there.
    """
    count, bits = in_a_word(one.dtype), 8 * one.dtype.nbytes
    low = f"bitcast<u32>(v) & {(1 << bits) - 1}u"
    if one.dtype is DType.BF16:
        low = "bitcast<u32>(v) >> 16u"
    kind = COMPUTED[one.dtype]
    part = (
        f"fn part{k}(n: u32, v: {kind}) -> u32 {{ return ({low}) << (n * {bits}u); }}"
    )
    at = f"(u.base{k} + i) >> {count.bit_length() - 1}u"
    return f"{part}\nfn st{k}(i: u32, word: u32) {{ a{k}[{at}] = word; }}"


def _load(k: int, one: Binding) -> str:
    if one.dtype in NARROW:
        return _unpacked(k, one)
    computed, stored = COMPUTED[one.dtype], STORED[one.dtype]
    if one.merged and one.dtype is DType.F16:
        word = f"merged[(u.base{k} + i) >> 1u]"
        value = f"unpack2x16float({word})[(u.base{k} + i) & 1u]"
    elif one.merged:
        raw = f"merged[u.base{k} + i]"
        value = raw if stored == "u32" else f"bitcast<{stored}>({raw})"
    elif one.wide:
        value = f"a{k}[u.base{k} / 4u + i]"
        computed = f"vec4<{computed}>"
        stored = f"vec4<{stored}>"
    else:
        value = f"a{k}[u.base{k} + i]"
    if one.dtype is DType.BOOL:
        value = f"{value} != {stored}(0u)"
    elif one.dtype is DType.F16:
        value = f"{computed}({value})"
    return f"fn ld{k}(i: u32) -> {computed} {{ return {value}; }}"


def _store(k: int, one: Binding, value: str = "v") -> str:
    """`value` is what becomes of v before it is stored."""
    if one.dtype in NARROW:
        return _packed(k, one)
    computed, stored = COMPUTED[one.dtype], STORED[one.dtype]
    at = f"u.base{k} + i"
    if one.wide:
        computed, stored = f"vec4<{computed}>", f"vec4<{stored}>"
        at = f"u.base{k} / 4u + i"
    if one.dtype is DType.BOOL:
        value = f"select({stored}(0u), {stored}(1u), {value})"
    elif one.dtype is DType.F16:
        value = f"{stored}({value})"
    return f"fn st{k}(i: u32, v: {computed}) {{ a{k}[{at}] = {value}; }}"


def _finish(call: Call, bindings: Sequence[Binding]) -> list[str]:
    """`finish(i, v)`: what is stored at element i (or four of them) in place of v."""
    finish = call.finish
    if finish is None:
        return []
    at = next(k for k, a in enumerate(call.accesses) if a.ref.kind == "out")
    fours = bindings[at].wide
    first = len(call.accesses) - len(finish.sides)
    kind = ALIAS[bindings[at].dtype]
    lines = [f"fn finish(i: u32, v: {kind}) -> {kind} {{"]
    if any(side.kind in ("row", "column", "channel") for side in finish.sides):
        # Pieces begin anywhere; the sides lie whole.
        begin = [f"u.at_{a.name} * u.finish_{a.name}" for a in call.axes]
        start = " + ".join(["u.finish_from", *begin])
        lines.append(f"  let at = i + ({start}){' / 4u' if fours else ''};")
        lines.append(f"  let line = u.finish_line{' / 4u' if fours else ''};")
    places = {"same": "i", "row": "at % line", "column": "at / line", "one": "0u"}
    for n, side in enumerate(finish.sides):
        places["channel"] = f"at / u.finish_inner{n} % u.finish_count{n}"
        load = f"ld{first + n}({places[side.kind]})"
        if fours and not bindings[first + n].wide:
            load = f"{ALIAS[side.dtype]}({load})"
        lines.append(f"  let r{n + 1} = {load};")
    return [*lines, *finish.lines, f"  return {finish.result};", "}"]


def uniform_fields(call: Call) -> tuple[tuple[str, str], ...]:
    """(name, type) of the uniform record, in order."""
    names = [("items", "u32")]
    names += [(f"base{k}", "u32") for k in range(len(call.accesses))]
    for axis in call.axes:
        names += [(axis.name, "u32"), (f"at_{axis.name}", "u32")]
    for name, value in call.values.items():
        names.append((name, "f32" if isinstance(value, float) else "u32"))
    return tuple(names)


ITEM_OF = {
    "invocation": "(wid.x + nwg.x * (wid.y + nwg.y * wid.z)) * WG + lid",
    "workgroup": "wid.x + nwg.x * (wid.y + nwg.y * wid.z)",
}


def module(call: Call, bindings: Sequence[Binding]) -> str:
    """The whole WGSL module of a call; a wide binding makes the aliases vec4s."""
    half = any(b.dtype is DType.F16 and not b.merged for b in bindings)
    lines = ["enable f16;"] if half else []
    wide = any(b.wide for b in bindings)
    for alias, scalar in SCALARS.items():
        kind = f"vec4<{scalar}>" if wide else scalar
        lines.append(f"alias {alias} = {kind};")
    lines.append("override WG: u32 = 64u;")
    fields = ", ".join(f"{n}: {t}" for n, t in uniform_fields(call))
    lines.append(f"struct Uniforms {{ {fields} }}")
    lines.append("@group(1) @binding(0) var<uniform> u: Uniforms;")
    lines += _binding_lines(bindings, call.faults)
    for k, one in enumerate(bindings):
        if one.mode in ("read", "update"):
            lines.append(_load(k, one))
        if one.mode in ("write", "update"):
            ends = call.finish and call.finishes == "stores"
            is_out = call.accesses[k].ref.kind == "out"
            value = "finish(i, v)" if ends and is_out else "v"
            lines.append(_store(k, one, value))
    lines += _finish(call, bindings)
    lines.append(
        "fn item_of(wid: vec3<u32>, nwg: vec3<u32>, lid: u32) -> u32 "
        f"{{ return {ITEM_OF[call.per]}; }}"
    )
    lines += [shader_text(f"include/{name}") for name in with_needs(call.uses)]
    body = call.source if call.source is not None else shader_text(call.shader)
    return "\n".join([*lines, body])


_NEEDS = re.compile(r"^// needs: (.+)$", re.MULTILINE)


def with_needs(names: Sequence[str]) -> list[str]:
    """Includes in dependency order; a file's `// needs: a, b` line pulls others in."""
    out: list[str] = []

    def add(name: str) -> None:
        if name in out:
            return
        found = _NEEDS.search(shader_text(f"include/{name}"))
        for need in found.group(1).split(",") if found else ():
            add(need.strip())
        out.append(name)

    for name in names:
        add(name)
    return out


def declared_overrides(text: str, constants: Mapping[str, int]) -> dict[str, int]:
    """The constants the text really declares (an unknown override is an error)."""
    return {
        name: value
        for name, value in constants.items()
        if re.search(rf"\boverride\s+{name}\b", text)
    }
