"""The prelude of a module, checked by its text and by a driver that compiles it."""

from __future__ import annotations

import re

import pytest

from rlxweb.errors import GraphError
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Access, Axis, Call, Ref
from rlxweb.kernels.source import (
    Binding,
    declared_overrides,
    module,
    shader_text,
    uniform_fields,
)

BODY = "fn main() {}"
READ, WRITE = Binding(DType.F32, "read"), Binding(DType.F32, "write")


def call(accesses: int = 2, **changes: object) -> Call:
    walked = (
        *(Access(Ref("in", k), (1,)) for k in range(accesses - 1)),
        Access(Ref("out"), (1,), "write"),
    )
    settings: dict[str, object] = {
        "shader": "test",
        "axes": (Axis("n", 8),),
        "accesses": walked,
        "grid": (("n", 1),),
        "source": BODY,
    }
    return Call(**(settings | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "stored", "seen"),
    [
        (DType.F32, "f32", "f32"),
        (DType.F16, "f16", "f32"),
        (DType.I32, "i32", "i32"),
        (DType.U32, "u32", "u32"),
        (DType.BOOL, "u32", "bool"),
    ],
)
def test_each_type_is_stored_and_computed_in(
    dtype: DType, stored: str, seen: str
) -> None:
    """Bool is stored as u32, and f16 computed as f32; shaders never see the storage."""
    text = module(call(), [Binding(dtype, "read"), Binding(dtype, "write")])
    assert f"var<storage, read> a0: array<{stored}>;" in text
    assert f"var<storage, read_write> a1: array<{stored}>;" in text
    assert f"fn ld0(i: u32) -> {seen} " in text
    assert f"fn st1(i: u32, v: {seen}) " in text
    assert text.startswith("enable f16;") is (dtype is DType.F16)


def test_update_both_loads_and_stores() -> None:
    """A serial axis carries on from its own output."""
    text = module(call(1), [Binding(DType.F32, "update")])
    assert "fn ld0(" in text
    assert "fn st0(" in text


def test_read_only_and_write_only_have_one_function() -> None:
    """A kernel cannot write an input or read an output that is not filled."""
    text = module(call(), [READ, WRITE])
    assert "fn st0(" not in text
    assert "fn ld1(" not in text


def test_merged_reads_share_binding_zero_as_words() -> None:
    """The merged buffer comes first; the others are numbered after it."""
    text = module(
        call(3),
        [
            Binding(DType.F32, "read", merged=True),
            Binding(DType.BOOL, "read", merged=True),
            Binding(DType.I32, "write"),
        ],
    )
    assert "@binding(0) var<storage, read> merged: array<u32>;" in text
    assert "bitcast<f32>(merged[u.base0 + i])" in text
    assert "merged[u.base1 + i] != u32(0u)" in text
    assert "@binding(1) var<storage, read_write> a2: array<i32>;" in text


def test_wide_bindings_move_vec4s() -> None:
    """Four elements a load, addressed in fours."""
    text = module(call(), [Binding(DType.BOOL, "read", wide=True), WRITE])
    assert "alias F = vec4<f32>;" in text
    assert "array<vec4<u32>>" in text
    assert "a0[u.base0 / 4u + i] != vec4<u32>(0u)" in text


def test_a_call_that_faults_gets_a_flag_after_its_bindings() -> None:
    """The flag is the last storage binding and an atomic."""
    text = module(call(faults=True), [READ, WRITE])
    assert "@binding(2) var<storage, read_write> faulted: atomic<u32>;" in text
    assert "fn fault(code: u32)" in text


def test_uniform_fields_list_everything_once() -> None:
    """Items, bases, axes with their starts, then the call's own values by type."""
    one = call(values={"stride": 7, "eps": 1e-5})
    whole = ("items", "base0", "base1", "n", "at_n", "stride")
    assert uniform_fields(one) == (*((name, "u32") for name in whole), ("eps", "f32"))


def test_includes_bring_what_they_need_once_and_first() -> None:
    """A file's `// needs:` line is followed, however often it is asked for."""
    lines = re.findall(r"^// needs: (.+)$", shader_text("include/sigmoid"), re.M)
    needed = [name.strip() for line in lines for name in line.split(",")]
    text = module(call(uses=("sigmoid", "erf", "sigmoid")), [READ, WRITE])
    for name in ["sigmoid", "erf", *needed]:
        assert text.count(shader_text(f"include/{name}")) == 1
    assert text.endswith(BODY)


def test_a_missing_shader_file_is_named() -> None:
    """The message says which file and where it was looked for."""
    with pytest.raises(GraphError, match="shader 'no_such_kernel'"):
        shader_text("no_such_kernel")


def test_only_declared_overrides_are_set() -> None:
    """WebGPU refuses a constant that the module does not declare."""
    text = "override WG: u32 = 64u;\noverride TILE: u32 = 4u;"
    assert declared_overrides(text, {"WG": 32, "RADIX": 8}) == {"WG": 32}


def test_text_depends_on_structure_only() -> None:
    """Two sizes of one call share their text, and so their pipeline."""
    small = module(call(axes=(Axis("n", 8),), values={"stride": 1}), [READ, WRITE])
    large = module(call(axes=(Axis("n", 800),), values={"stride": 9}), [READ, WRITE])
    assert small == large
