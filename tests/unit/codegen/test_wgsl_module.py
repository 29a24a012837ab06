"""WGSL modules: the generated prelude, checked by its text and by a driver that
compiles it.
"""

from __future__ import annotations

import re

import pytest

from rlxweb.codegen.wgsl_module import (
    StorageBinding,
    build_module,
    declared_overrides,
    load_shader_text,
    uniform_fields,
)
from rlxweb.core.errors import GraphError
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import BufferRef, IterationAxis, KernelDispatch, OperandAccess

BODY = "fn main() {}"
READ, WRITE = StorageBinding(DType.F32, "read"), StorageBinding(DType.F32, "write")


def make_dispatch(access_count: int = 2, **changes: object) -> KernelDispatch:
    accesses = (
        *(OperandAccess(BufferRef("in", k), (1,)) for k in range(access_count - 1)),
        OperandAccess(BufferRef("out"), (1,), "write"),
    )
    settings: dict[str, object] = {
        "shader": "test",
        "axes": (IterationAxis("n", 8),),
        "accesses": accesses,
        "grid": (("n", 1),),
        "source": BODY,
    }
    return KernelDispatch(**(settings | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "stored", "computed"),
    [
        (DType.F32, "f32", "f32"),
        (DType.F16, "f16", "f32"),
        (DType.I32, "i32", "i32"),
        (DType.U32, "u32", "u32"),
        (DType.BOOL, "u32", "bool"),
    ],
)
def test_storage_and_compute_type_of_each_dtype(
    dtype: DType, stored: str, computed: str
) -> None:
    """Bool is stored as u32, and f16 computed as f32; shaders never see the storage."""
    text = build_module(
        make_dispatch(), [StorageBinding(dtype, "read"), StorageBinding(dtype, "write")]
    )
    assert f"var<storage, read> a0: array<{stored}>;" in text
    assert f"var<storage, read_write> a1: array<{stored}>;" in text
    assert f"fn ld0(i: u32) -> {computed} " in text
    assert f"fn st1(i: u32, v: {computed}) " in text
    assert text.startswith("enable f16;") is (dtype is DType.F16)


def test_update_both_loads_and_stores() -> None:
    """A serial axis continues from its own output."""
    text = build_module(make_dispatch(1), [StorageBinding(DType.F32, "update")])
    assert "fn ld0(" in text
    assert "fn st0(" in text


def test_read_only_and_write_only_have_one_function() -> None:
    """A kernel cannot write an input or read an output that is not filled."""
    text = build_module(make_dispatch(), [READ, WRITE])
    assert "fn st0(" not in text
    assert "fn ld1(" not in text


def test_merged_reads_share_binding_zero_as_words() -> None:
    """The merged buffer comes first; the others are numbered after it."""
    text = build_module(
        make_dispatch(3),
        [
            StorageBinding(DType.F32, "read", is_merged=True),
            StorageBinding(DType.BOOL, "read", is_merged=True),
            StorageBinding(DType.I32, "write"),
        ],
    )
    assert "@binding(0) var<storage, read> merged: array<u32>;" in text
    assert "bitcast<f32>(merged[u.base0 + i])" in text
    assert "merged[u.base1 + i] != u32(0u)" in text
    assert "@binding(1) var<storage, read_write> a2: array<i32>;" in text


def test_vec4_bindings_load_four_elements() -> None:
    """Vec4 bindings load four elements at a time, addressed in units of four."""
    text = build_module(
        make_dispatch(), [StorageBinding(DType.BOOL, "read", is_vec4=True), WRITE]
    )
    assert "alias F = vec4<f32>;" in text
    assert "array<vec4<u32>>" in text
    assert "a0[u.base0 / 4u + i] != vec4<u32>(0u)" in text


def test_a_fault_flag_follows_the_bindings() -> None:
    """The flag is the last storage binding and an atomic."""
    text = build_module(make_dispatch(reports_faults=True), [READ, WRITE])
    assert "@binding(2) var<storage, read_write> faulted: atomic<u32>;" in text
    assert "fn fault(code: u32)" in text


def test_uniform_fields_list_everything_once() -> None:
    """Item count, bases, axes with their starts, then the dispatch's own uniforms by
    type.
    """
    dispatch = make_dispatch(uniforms={"stride": 7, "eps": 1e-5})
    u32_names = ("items", "base0", "base1", "n", "at_n", "stride")
    assert uniform_fields(dispatch) == (
        *((name, "u32") for name in u32_names),
        ("eps", "f32"),
    )


def test_includes_bring_what_they_need_once_and_first() -> None:
    """A file's `// needs:` lines are resolved, and each include appears once."""
    lines = re.findall(r"^// needs: (.+)$", load_shader_text("sigmoid"), re.M)
    needed = [name.strip() for line in lines for name in line.split(",")]
    text = build_module(
        make_dispatch(uses=("sigmoid", "erf", "sigmoid")), [READ, WRITE]
    )
    for name in ["sigmoid", "erf", *needed]:
        assert text.count(load_shader_text(name)) == 1
    assert text.endswith(BODY)


def test_a_missing_shader_file_is_named() -> None:
    """The message says which file and where it was looked for."""
    with pytest.raises(GraphError, match="shader 'no_such_kernel'"):
        load_shader_text("no_such_kernel")


def test_only_declared_overrides_are_set() -> None:
    """WebGPU refuses a constant that the module does not declare."""
    text = "override WG: u32 = 64u;\noverride TILE: u32 = 4u;"
    assert declared_overrides(text, {"WG": 32, "RADIX": 8}) == {"WG": 32}


def test_text_depends_on_structure_only() -> None:
    """Two sizes of one dispatch share their text, and so their pipeline."""
    small = build_module(
        make_dispatch(axes=(IterationAxis("n", 8),), uniforms={"stride": 1}),
        [READ, WRITE],
    )
    large = build_module(
        make_dispatch(axes=(IterationAxis("n", 800),), uniforms={"stride": 9}),
        [READ, WRITE],
    )
    assert small == large
