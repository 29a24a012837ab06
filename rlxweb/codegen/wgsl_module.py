"""Generate WGSL modules: load `shaders/*/*.wgsl` and write the prelude that precedes
them.

The prelude declares bindings, the uniform record and the `ldN`/`stN` functions, so that
a shader file holds nothing but its algorithm and can never disagree with the host about
types, offsets or names. The ABI is described in `site/pages/concepts/shaders.md`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from rlxweb.core.errors import GraphError
from rlxweb.ir.dtype import PACKED_DTYPES, DType
from rlxweb.ir.lowering import KernelDispatch

STORAGE_TYPES = {
    DType.F16: "f16",
    DType.F32: "f32",
    DType.I32: "i32",
    DType.U32: "u32",
    DType.BOOL: "u32",
    **dict.fromkeys(PACKED_DTYPES, "u32"),
}
COMPUTE_TYPES = {
    **STORAGE_TYPES,
    **dict.fromkeys(PACKED_DTYPES, "i32"),
    DType.BF16: "f32",
    DType.F16: "f32",
    DType.BOOL: "bool",
}
ALIAS_SCALARS = {"F": "f32", "I": "i32", "U": "u32", "B": "bool"}
TYPE_ALIASES = {dtype: computed[0].upper() for dtype, computed in COMPUTE_TYPES.items()}


@cache
def _shader_files() -> Mapping[str, Traversable]:
    """Return every `shaders/FAMILY/NAME.wgsl` by its NAME, which no two files share: of
    the package (wheels), else of the folder beside it (a checkout).
    """
    folder: Traversable = resources.files("rlxweb") / "shaders"
    if not folder.is_dir():
        folder = Path(__file__).resolve().parents[2] / "shaders"
    return {
        file.name.removesuffix(".wgsl"): file
        for family in folder.iterdir()
        if family.is_dir()
        for file in family.iterdir()
        if file.name.endswith(".wgsl")
    }


@lru_cache(maxsize=256)
def load_shader_text(name: str) -> str:
    """Return the text of `shaders/FAMILY/NAME.wgsl`, of whichever family.

    Errors   GraphError when there is no such file.
    """
    file = _shader_files().get(name)
    if file is None:
        raise GraphError(
            f"shader '{name}'",
            f"no folder of shaders/ has a file {name}.wgsl",
            hint="use the name of a file there, or pass the WGSL text as `source`",
        )
    return file.read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class StorageBinding:
    """Binding of one access: alone, or as part of the merged read-only buffer."""

    dtype: DType
    mode: str
    is_merged: bool = False
    is_vec4: bool = False


def _binding_lines(
    bindings: Sequence[StorageBinding], reports_faults: bool
) -> list[str]:
    """Return the declarations of the storage bindings."""
    lines, number = [], 0
    if any(binding.is_merged for binding in bindings):
        lines.append("@group(0) @binding(0) var<storage, read> merged: array<u32>;")
        number = 1
    for k, binding in enumerate(bindings):
        if binding.is_merged:
            continue
        mode = "read" if binding.mode == "read" else "read_write"
        stored = STORAGE_TYPES[binding.dtype]
        stored = f"vec4<{stored}>" if binding.is_vec4 else stored
        lines.append(
            f"@group(0) @binding({number}) var<storage, {mode}> a{k}: array<{stored}>;"
        )
        number += 1
    if reports_faults:
        lines.append(
            f"@group(0) @binding({number}) var<storage, read_write> faulted: "
            f"atomic<u32>;"
        )
        lines.append("fn fault(code: u32) { atomicMax(&faulted, code); }")
    return lines


def elements_per_word(dtype: DType) -> int:
    """Return how many elements share a word of a buffer, where a word is what is
    moved.
    """
    return 4 // dtype.nbytes if dtype in PACKED_DTYPES else 1


def _packed_load_wgsl(k: int, binding: StorageBinding) -> str:
    """Return the WGSL of `ldN` for an element that shares its word with others."""
    per_word, bits = elements_per_word(binding.dtype), 8 * binding.dtype.nbytes
    buffer = "merged" if binding.is_merged else f"a{k}"
    index_wgsl = f"let at = u.base{k} + i;"
    word_wgsl = f"let word = {buffer}[at >> {per_word.bit_length() - 1}u];"
    # The element's bits at the top of a word.
    top_wgsl = f"let top = word << ({32 - bits}u - (at & {per_word - 1}u) * {bits}u);"
    value = f"i32(top >> {32 - bits}u)"
    if binding.dtype is DType.BF16:
        value = "bitcast<f32>(top & 0xffff0000u)"
    elif not binding.dtype.is_unsigned:
        value = f"bitcast<i32>(top) >> {32 - bits}u"
    compute_type = COMPUTE_TYPES[binding.dtype]
    return (
        f"fn ld{k}(i: u32) -> {compute_type} "
        f"{{ {index_wgsl} {word_wgsl} {top_wgsl} return {value}; }}"
    )


def _packed_store_wgsl(k: int, binding: StorageBinding) -> str:
    """Return the WGSL of `stN` for the word whose first element is i, and of `partN`,
    an element's bits in that word.
    """
    per_word, bits = elements_per_word(binding.dtype), 8 * binding.dtype.nbytes
    low_bits = f"bitcast<u32>(v) & {(1 << bits) - 1}u"
    if binding.dtype is DType.BF16:
        low_bits = "bitcast<u32>(v) >> 16u"
    compute_type = COMPUTE_TYPES[binding.dtype]
    part_wgsl = (
        f"fn part{k}(n: u32, v: {compute_type}) -> u32 "
        f"{{ return ({low_bits}) << (n * {bits}u); }}"
    )
    word_index = f"(u.base{k} + i) >> {per_word.bit_length() - 1}u"
    return f"{part_wgsl}\nfn st{k}(i: u32, word: u32) {{ a{k}[{word_index}] = word; }}"


def _load_wgsl(k: int, binding: StorageBinding) -> str:
    """Return the WGSL of `ldN`."""
    if binding.dtype in PACKED_DTYPES:
        return _packed_load_wgsl(k, binding)
    computed, stored = COMPUTE_TYPES[binding.dtype], STORAGE_TYPES[binding.dtype]
    if binding.is_merged and binding.dtype is DType.F16:
        word = f"merged[(u.base{k} + i) >> 1u]"
        value = f"unpack2x16float({word})[(u.base{k} + i) & 1u]"
    elif binding.is_merged:
        raw = f"merged[u.base{k} + i]"
        value = raw if stored == "u32" else f"bitcast<{stored}>({raw})"
    elif binding.is_vec4:
        value = f"a{k}[u.base{k} / 4u + i]"
        computed = f"vec4<{computed}>"
        stored = f"vec4<{stored}>"
    else:
        value = f"a{k}[u.base{k} + i]"
    if binding.dtype is DType.BOOL:
        value = f"{value} != {stored}(0u)"
    elif binding.dtype is DType.F16:
        value = f"{computed}({value})"
    return f"fn ld{k}(i: u32) -> {computed} {{ return {value}; }}"


def _store_wgsl(k: int, binding: StorageBinding, value: str = "v") -> str:
    """Return the WGSL of `stN`; `value` is the expression of v that is stored."""
    if binding.dtype in PACKED_DTYPES:
        return _packed_store_wgsl(k, binding)
    computed, stored = COMPUTE_TYPES[binding.dtype], STORAGE_TYPES[binding.dtype]
    index_wgsl = f"u.base{k} + i"
    if binding.is_vec4:
        computed, stored = f"vec4<{computed}>", f"vec4<{stored}>"
        index_wgsl = f"u.base{k} / 4u + i"
    if binding.dtype is DType.BOOL:
        value = f"select({stored}(0u), {stored}(1u), {value})"
    elif binding.dtype is DType.F16:
        value = f"{stored}({value})"
    return f"fn st{k}(i: u32, v: {computed}) {{ a{k}[{index_wgsl}] = {value}; }}"


def _epilogue_wgsl(
    dispatch: KernelDispatch, bindings: Sequence[StorageBinding]
) -> list[str]:
    """Return the WGSL of `finish(i, v)`, the value that is stored at element i (or four
    of them) in place of v.
    """
    epilogue = dispatch.epilogue
    if epilogue is None:
        return []
    out_index = next(k for k, a in enumerate(dispatch.accesses) if a.ref.kind == "out")
    is_vec4 = bindings[out_index].is_vec4
    first_operand = len(dispatch.accesses) - len(epilogue.operands)
    alias = TYPE_ALIASES[bindings[out_index].dtype]
    lines = [f"fn finish(i: u32, v: {alias}) -> {alias} {{"]
    if any(
        operand.kind in ("row", "column", "channel") for operand in epilogue.operands
    ):
        # Pieces begin anywhere; the sides lie whole.
        chunk_offsets = [f"u.at_{a.name} * u.finish_{a.name}" for a in dispatch.axes]
        start = " + ".join(["u.finish_from", *chunk_offsets])
        lines.append(f"  let at = i + ({start}){' / 4u' if is_vec4 else ''};")
        lines.append(f"  let line = u.finish_line{' / 4u' if is_vec4 else ''};")
    operand_indices = {
        "same": "i",
        "row": "at % line",
        "column": "at / line",
        "one": "0u",
    }
    for n, operand in enumerate(epilogue.operands):
        operand_indices["channel"] = f"at / u.finish_inner{n} % u.finish_count{n}"
        load = f"ld{first_operand + n}({operand_indices[operand.kind]})"
        if is_vec4 and not bindings[first_operand + n].is_vec4:
            load = f"{TYPE_ALIASES[operand.dtype]}({load})"
        lines.append(f"  let r{n + 1} = {load};")
    return [*lines, *epilogue.lines, f"  return {epilogue.result};", "}"]


def uniform_fields(dispatch: KernelDispatch) -> tuple[tuple[str, str], ...]:
    """Return (name, type) of each field of the uniform record, in order."""
    fields = [("items", "u32")]
    fields += [(f"base{k}", "u32") for k in range(len(dispatch.accesses))]
    for axis in dispatch.axes:
        fields += [(axis.name, "u32"), (f"at_{axis.name}", "u32")]
    for name, value in dispatch.uniforms.items():
        fields.append((name, "f32" if isinstance(value, float) else "u32"))
    return tuple(fields)


ITEM_INDEX_WGSL = {
    "invocation": "(wid.x + nwg.x * (wid.y + nwg.y * wid.z)) * WG + lid",
    "workgroup": "wid.x + nwg.x * (wid.y + nwg.y * wid.z)",
}


def build_module(dispatch: KernelDispatch, bindings: Sequence[StorageBinding]) -> str:
    """Return the whole WGSL module of a dispatch; a vec4 binding makes the type aliases
    vec4s.
    """
    uses_float16 = any(
        binding.dtype is DType.F16 and not binding.is_merged for binding in bindings
    )
    lines = ["enable f16;"] if uses_float16 else []
    uses_vec4 = any(binding.is_vec4 for binding in bindings)
    for alias, scalar in ALIAS_SCALARS.items():
        wgsl_type = f"vec4<{scalar}>" if uses_vec4 else scalar
        lines.append(f"alias {alias} = {wgsl_type};")
    lines.append("override WG: u32 = 64u;")
    fields = ", ".join(f"{n}: {t}" for n, t in uniform_fields(dispatch))
    lines.append(f"struct Uniforms {{ {fields} }}")
    lines.append("@group(1) @binding(0) var<uniform> u: Uniforms;")
    lines += _binding_lines(bindings, dispatch.reports_faults)
    for k, binding in enumerate(bindings):
        if binding.mode in ("read", "update"):
            lines.append(_load_wgsl(k, binding))
        if binding.mode in ("write", "update"):
            has_epilogue = dispatch.epilogue and dispatch.epilogue_site == "stores"
            is_out = dispatch.accesses[k].ref.kind == "out"
            value = "finish(i, v)" if has_epilogue and is_out else "v"
            lines.append(_store_wgsl(k, binding, value))
    lines += _epilogue_wgsl(dispatch, bindings)
    lines.append(
        "fn item_of(wid: vec3<u32>, nwg: vec3<u32>, lid: u32) -> u32 "
        f"{{ return {ITEM_INDEX_WGSL[dispatch.item_unit]}; }}"
    )
    lines += [load_shader_text(name) for name in resolve_includes(dispatch.uses)]
    body = (
        dispatch.source
        if dispatch.source is not None
        else load_shader_text(dispatch.shader)
    )
    return "\n".join([*lines, body])


_NEEDS_LINE = re.compile(r"^// needs: (.+)$", re.MULTILINE)


def resolve_includes(names: Sequence[str]) -> list[str]:
    """Return includes in dependency order; a file's `// needs: a, b` line adds
    others.
    """
    includes: list[str] = []

    def add_include(name: str) -> None:
        if name in includes:
            return
        match = _NEEDS_LINE.search(load_shader_text(name))
        for need in match.group(1).split(",") if match else ():
            add_include(need.strip())
        includes.append(name)

    for name in names:
        add_include(name)
    return includes


def declared_overrides(text: str, override_values: Mapping[str, int]) -> dict[str, int]:
    """Return the override values that the text really declares (an unknown override is
    an error).
    """
    return {
        name: value
        for name, value in override_values.items()
        if re.search(rf"\boverride\s+{name}\b", text)
    }
