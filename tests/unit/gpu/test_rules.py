"""Each rule of WebGPU a plan can break is refused, with both numbers in the message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlxweb.errors import DeviceError, LimitExceeded
from rlxweb.gpu import rules
from rlxweb.gpu.port import Clear, Command, Copy, Dispatch, Range
from rlxweb.limits import Limits

LIMITS = replace(
    Limits(),
    max_buffer_size=1 << 20,
    max_storage_buffer_binding_size=4096,
    max_uniform_buffer_binding_size=64,
    max_storage_buffers_per_shader_stage=3,
    max_compute_workgroups_per_dimension=7,
)
BIG, OTHER, UNIFORM, BACK, GONE = 1, 2, 3, 4, 99
BUFFERS = {
    BIG: rules.BufferFacts(16384, "storage"),
    OTHER: rules.BufferFacts(1024, "storage"),
    UNIFORM: rules.BufferFacts(512, "uniform"),
    BACK: rules.BufferFacts(1024, "readback"),
}
ADD, SCALE, PAIR = 11, 12, 13
LAYOUTS = {
    ADD: ("read", "write"),
    SCALE: ("write", "uniform"),
    PAIR: ("write", "write"),
}


def check(command: Command) -> None:
    rules.check_command(command, BUFFERS, LAYOUTS, LIMITS)  # type: ignore[arg-type]


def at(buffer: int, offset: int = 0, nbytes: int = 4) -> Range:
    return Range(buffer, offset, nbytes)


def run(
    pipeline: int, *spans: Range, grid: tuple[int, int, int] = (1, 1, 1)
) -> Dispatch:
    return Dispatch(pipeline, spans, grid, "step 'x'")


GOOD = [
    run(ADD, at(OTHER, 0, 1024), at(BIG, 256, 4096)),
    run(SCALE, at(BIG), at(UNIFORM, 256, 64)),
    run(PAIR, at(BIG, 0, 256), at(BIG, 256, 256)),
    run(ADD, at(OTHER), at(BIG), grid=(7, 7, 7)),
    run(ADD, at(OTHER), at(BIG), grid=(0, 1, 1)),
    Copy(at(BIG, 4, 1024), BACK, 0),
    Copy(at(BIG, 0, 256), UNIFORM, 256),
    Clear(at(BACK, 4, 8)),
]

REFUSED: list[tuple[Command, type[DeviceError], str]] = [
    (run(GONE, at(BIG)), DeviceError, "99 is no live pipeline"),
    (run(ADD, at(BIG)), DeviceError, "1 bindings were given.*takes 2"),
    (run(ADD, at(GONE), at(BIG)), DeviceError, "99 is no live buf"),
    (run(ADD, at(UNIFORM), at(BIG)), DeviceError, "uniform buffer"),
    (run(ADD, at(BACK), at(BIG)), DeviceError, "readback buffer"),
    (run(SCALE, at(BIG), at(OTHER)), DeviceError, "takes uniform"),
    (run(ADD, at(OTHER, 0, 0), at(BIG)), DeviceError, "0 bytes"),
    (run(ADD, at(OTHER, 0, 6), at(BIG)), DeviceError, "size 6.*of 4"),
    (run(ADD, at(OTHER, 128, 4), at(BIG)), DeviceError, "128.*is 256"),
    (run(ADD, at(OTHER, -256, 4), at(BIG)), DeviceError, "holds 1024"),
    (run(ADD, at(OTHER, 1024, 4), at(BIG)), DeviceError, "1028.*1024"),
    (run(ADD, at(OTHER), at(BIG, 0, 4100)), LimitExceeded, "4100.*4096"),
    (run(SCALE, at(BIG), at(UNIFORM, 0, 68)), LimitExceeded, "68.* 64"),
    (
        run(SCALE, at(BIG), at(UNIFORM, 16, 4)),
        DeviceError,
        "16.*min_uniform_buffer_offset_alignment is 256",
    ),
    (
        run(ADD, at(BIG, 0, 256), at(BIG, 256, 256)),
        DeviceError,
        "buffer 1 is bound to read and to write",
    ),
    (run(PAIR, at(BIG, 256, 256), at(BIG, 0, 260)), DeviceError, "overlap.*260.*256"),
    (
        run(ADD, at(OTHER), at(BIG), grid=(8, 1, 1)),
        LimitExceeded,
        "needs 8, max_compute_workgroups_per_dimension is 7",
    ),
    (run(ADD, at(OTHER), at(BIG), grid=(1, -1, 1)), DeviceError, "counts >= 0"),
    (Copy(at(GONE), BACK), DeviceError, "99 is no live buffer"),
    (Copy(at(BIG), GONE), DeviceError, "99 is no live buffer"),
    (Copy(at(BACK), BIG), DeviceError, "readback buffer.*takes storage"),
    (Copy(at(UNIFORM), BIG), DeviceError, "uniform buffer.*takes storage"),
    (Copy(at(BIG, 2, 4), BACK), DeviceError, "offset 2"),
    (Copy(at(BIG), BACK, 2), DeviceError, "offset 2"),
    (Copy(at(BIG, 0, 0), BACK), DeviceError, "0 bytes"),
    (Copy(at(BIG, 0, 1024), BACK, 4), DeviceError, "1028.*1024"),
    (Copy(at(BIG), BIG, 256), DeviceError, "two buffers"),
    (Clear(at(GONE)), DeviceError, "99 is no live buffer"),
    (Clear(at(BIG, 0, 3)), DeviceError, "size 3"),
    (Clear(at(BIG, 16384, 4)), DeviceError, "16388.*16384"),
    ("draw", DeviceError, "str is no command"),  # type: ignore[list-item]
]


@pytest.mark.parametrize("command", GOOD, ids=str)
def test_what_webgpu_takes_is_taken(command: Command) -> None:
    check(command)


@pytest.mark.parametrize(("command", "kind", "said"), REFUSED, ids=str)
def test_what_webgpu_refuses_is_refused(
    command: Command, kind: type[DeviceError], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        check(command)
    assert type(caught.value) is kind
    assert caught.value.doing


def test_a_dispatch_is_named_by_its_label() -> None:
    with pytest.raises(DeviceError, match="step 'x'"):
        check(run(ADD))


@pytest.mark.parametrize(
    ("nbytes", "usage", "kind", "said"),
    [
        (4, "vertex", DeviceError, "unknown usage 'vertex'"),
        (-1, "storage", DeviceError, "negative"),
        (
            (1 << 20) + 1,
            "storage",
            LimitExceeded,
            "1048580.*max_buffer_size is 1048576",
        ),
    ],
)
def test_a_buffer_that_cannot_be_is_refused(
    nbytes: int, usage: str, kind: type[DeviceError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        rules.check_buffer(nbytes, usage, LIMITS)  # type: ignore[arg-type]


def test_a_buffer_of_the_largest_size_is_taken() -> None:
    rules.check_buffer(1 << 20, "readback", LIMITS)
    assert [rules.padded(n) for n in (0, 1, 4, 5)] == [4, 4, 4, 8]


@pytest.mark.parametrize(
    ("layout", "kind", "said"),
    [
        (("read", "both"), DeviceError, "unknown access 'both'"),
        (("uniform", "read"), DeviceError, "only the last"),
        (("uniform", "uniform"), DeviceError, "only the last"),
        (("read",) * 4, LimitExceeded, "needs 4, max_storage.* is 3"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(
    layout: tuple[str, ...], kind: type[DeviceError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        rules.check_layout(layout, LIMITS)  # type: ignore[arg-type]


def test_a_uniform_does_not_count_as_storage() -> None:
    rules.check_layout(("read", "read", "write", "uniform"), LIMITS)


def test_a_write_is_cut_into_words_and_a_padded_tail() -> None:
    for length in range(9):
        data = memoryview(bytes(range(1, length + 1)))
        whole, tail = rules.check_write(BIG, 4, data, BUFFERS)
        assert whole.nbytes == length // 4 * 4
        assert len(tail) == (4 if length % 4 else 0)
        assert (bytes(whole) + tail).rstrip(b"\0") == bytes(data)


def test_a_write_takes_any_shape_that_lies_dense() -> None:
    square = memoryview(bytes(16)).cast("f", (2, 2))
    assert rules.check_write(BIG, 0, square, BUFFERS)[0].nbytes == 16


@pytest.mark.parametrize(
    ("handle", "offset", "data", "said"),
    [
        (GONE, 0, memoryview(b"1234"), "99 is no live buffer"),
        (BIG, 2, memoryview(b"1234"), "offset 2"),
        (BIG, 16384, memoryview(b"1"), "16385.*16384"),
        (BIG, -4, memoryview(b"1234"), "holds 16384"),
        (BIG, 0, memoryview(b"12345678")[::2], "not contiguous"),
    ],
)
def test_a_write_that_cannot_be_is_refused(
    handle: int, offset: int, data: memoryview, said: str
) -> None:
    with pytest.raises(DeviceError, match=said):
        rules.check_write(handle, offset, data, BUFFERS)


@pytest.mark.parametrize(
    ("handle", "offset", "nbytes", "said"),
    [
        (GONE, 0, 4, "99 is no live buffer"),
        (UNIFORM, 0, 4, "uniform buffer"),
        (BIG, 0, -1, "negative length"),
        (BIG, 16383, 2, "16385.*16384"),
    ],
)
def test_a_read_that_cannot_be_is_refused(
    handle: int, offset: int, nbytes: int, said: str
) -> None:
    with pytest.raises(DeviceError, match=said):
        rules.check_read(handle, offset, nbytes, BUFFERS)


@pytest.mark.parametrize(
    ("size", "constants", "said"),
    [
        ("257", {}, "needs 257, max_compute_workgroup_size_x is 256"),
        ("W", {"W": 512.0}, "needs 512, max_compute_workgroup_size_x is 256"),
        ("W", {}, "needs 300"),
        ("16u, W, 2", {"W": 16.0}, "needs 512, max_compute_invocations"),
    ],
)
def test_a_workgroup_too_large_is_refused(
    size: str, constants: dict[str, float], said: str
) -> None:
    """An override may not make a workgroup too large, which wgpu does not check."""
    source = f"override W: u32 = 300u; @compute @workgroup_size({size}) fn main() {{}}"
    with pytest.raises(LimitExceeded, match=said):
        rules.check_workgroup(source, constants, LIMITS)


@pytest.mark.parametrize("size", ["256", "W", "16, 16", "W, 2, 2,", "UNKNOWN"])
def test_a_workgroup_that_fits_or_cannot_be_told_is_taken(size: str) -> None:
    source = f"override W : i32 = 64; @compute @workgroup_size({size}) fn main() {{}}"
    rules.check_workgroup(source, {}, LIMITS)
    rules.check_workgroup("no shader at all", {}, LIMITS)
