"""Commands that break a rule of WebGPU are refused, with both numbers in the
message.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlxweb.core.errors import DeviceError, LimitExceeded
from rlxweb.core.limits import Limits
from rlxweb.gpu import command_validation
from rlxweb.gpu.port_protocol import (
    BufferClear,
    BufferCopy,
    BufferRange,
    Command,
    Dispatch,
)

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
    BIG: command_validation.BufferFacts(16384, "storage"),
    OTHER: command_validation.BufferFacts(1024, "storage"),
    UNIFORM: command_validation.BufferFacts(512, "uniform"),
    BACK: command_validation.BufferFacts(1024, "readback"),
}
ADD, SCALE, PAIR = 11, 12, 13
LAYOUTS = {
    ADD: ("read", "write"),
    SCALE: ("write", "uniform"),
    PAIR: ("write", "write"),
}


def check(command: Command) -> None:
    command_validation.check_command(command, BUFFERS, LAYOUTS, LIMITS)  # type: ignore[arg-type]


def buffer_range(buffer: int, offset: int = 0, nbytes: int = 4) -> BufferRange:
    return BufferRange(buffer, offset, nbytes)


def dispatch(
    pipeline: int, *spans: BufferRange, grid: tuple[int, int, int] = (1, 1, 1)
) -> Dispatch:
    return Dispatch(pipeline, spans, grid, "step 'x'")


VALID_COMMANDS = [
    dispatch(ADD, buffer_range(OTHER, 0, 1024), buffer_range(BIG, 256, 4096)),
    dispatch(SCALE, buffer_range(BIG), buffer_range(UNIFORM, 256, 64)),
    dispatch(PAIR, buffer_range(BIG, 0, 256), buffer_range(BIG, 256, 256)),
    dispatch(ADD, buffer_range(OTHER), buffer_range(BIG), grid=(7, 7, 7)),
    dispatch(ADD, buffer_range(OTHER), buffer_range(BIG), grid=(0, 1, 1)),
    BufferCopy(buffer_range(BIG, 4, 1024), BACK, 0),
    BufferCopy(buffer_range(BIG, 0, 256), UNIFORM, 256),
    BufferClear(buffer_range(BACK, 4, 8)),
]

REFUSED_COMMANDS: list[tuple[Command, type[DeviceError], str]] = [
    (dispatch(GONE, buffer_range(BIG)), DeviceError, "pipeline 99 does not exist"),
    (dispatch(ADD, buffer_range(BIG)), DeviceError, "got 1 bindings.*expects 2"),
    (
        dispatch(ADD, buffer_range(GONE), buffer_range(BIG)),
        DeviceError,
        "buffer 99 does not exist",
    ),
    (
        dispatch(ADD, buffer_range(UNIFORM), buffer_range(BIG)),
        DeviceError,
        "uniform buffer",
    ),
    (
        dispatch(ADD, buffer_range(BACK), buffer_range(BIG)),
        DeviceError,
        "readback buffer",
    ),
    (
        dispatch(SCALE, buffer_range(BIG), buffer_range(OTHER)),
        DeviceError,
        "must be uniform",
    ),
    (
        dispatch(ADD, buffer_range(OTHER, 0, 0), buffer_range(BIG)),
        DeviceError,
        "0 bytes",
    ),
    (
        dispatch(ADD, buffer_range(OTHER, 0, 6), buffer_range(BIG)),
        DeviceError,
        "size 6.*of 4",
    ),
    (
        dispatch(ADD, buffer_range(OTHER, 128, 4), buffer_range(BIG)),
        DeviceError,
        "is 128.*multiple of 256",
    ),
    (
        dispatch(ADD, buffer_range(OTHER, -256, 4), buffer_range(BIG)),
        DeviceError,
        "has 1024 bytes",
    ),
    (
        dispatch(ADD, buffer_range(OTHER, 1024, 4), buffer_range(BIG)),
        DeviceError,
        "1028.*1024",
    ),
    (
        dispatch(ADD, buffer_range(OTHER), buffer_range(BIG, 0, 4100)),
        LimitExceeded,
        "4100.*4096",
    ),
    (
        dispatch(SCALE, buffer_range(BIG), buffer_range(UNIFORM, 0, 68)),
        LimitExceeded,
        "68.* 64",
    ),
    (
        dispatch(SCALE, buffer_range(BIG), buffer_range(UNIFORM, 16, 4)),
        DeviceError,
        "is 16.*multiple of 256 .min_uniform_buffer_offset_alignment",
    ),
    (
        dispatch(ADD, buffer_range(BIG, 0, 256), buffer_range(BIG, 256, 256)),
        DeviceError,
        "buffer 1 is bound both for reading and for writing",
    ),
    (
        dispatch(PAIR, buffer_range(BIG, 256, 256), buffer_range(BIG, 0, 260)),
        DeviceError,
        "overlap.*260.*256",
    ),
    (
        dispatch(ADD, buffer_range(OTHER), buffer_range(BIG), grid=(8, 1, 1)),
        LimitExceeded,
        "needs 8, max_compute_workgroups_per_dimension is 7",
    ),
    (
        dispatch(ADD, buffer_range(OTHER), buffer_range(BIG), grid=(1, -1, 1)),
        DeviceError,
        "integers >= 0",
    ),
    (BufferCopy(buffer_range(GONE), BACK), DeviceError, "buffer 99 does not exist"),
    (BufferCopy(buffer_range(BIG), GONE), DeviceError, "buffer 99 does not exist"),
    (
        BufferCopy(buffer_range(BACK), BIG),
        DeviceError,
        "readback buffer.*must be storage",
    ),
    (
        BufferCopy(buffer_range(UNIFORM), BIG),
        DeviceError,
        "uniform buffer.*must be storage",
    ),
    (BufferCopy(buffer_range(BIG, 2, 4), BACK), DeviceError, "offset 2"),
    (BufferCopy(buffer_range(BIG), BACK, 2), DeviceError, "offset 2"),
    (BufferCopy(buffer_range(BIG, 0, 0), BACK), DeviceError, "0 bytes"),
    (BufferCopy(buffer_range(BIG, 0, 1024), BACK, 4), DeviceError, "1028.*1024"),
    (BufferCopy(buffer_range(BIG), BIG, 256), DeviceError, "different buffers"),
    (BufferClear(buffer_range(GONE)), DeviceError, "buffer 99 does not exist"),
    (BufferClear(buffer_range(BIG, 0, 3)), DeviceError, "size 3"),
    (BufferClear(buffer_range(BIG, 16384, 4)), DeviceError, "16388.*16384"),
    ("draw", DeviceError, "unknown command str"),  # type: ignore[list-item]
]


@pytest.mark.parametrize("command", VALID_COMMANDS, ids=str)
def test_valid_commands_are_accepted(command: Command) -> None:
    check(command)


@pytest.mark.parametrize(("command", "kind", "message"), REFUSED_COMMANDS, ids=str)
def test_invalid_commands_are_refused(
    command: Command, kind: type[DeviceError], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        check(command)
    assert type(caught.value) is kind
    assert caught.value.doing


def test_a_dispatch_is_named_by_its_label() -> None:
    with pytest.raises(DeviceError, match="step 'x'"):
        check(dispatch(ADD))


@pytest.mark.parametrize(
    ("nbytes", "usage", "kind", "message"),
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
def test_invalid_buffers_are_refused(
    nbytes: int, usage: str, kind: type[DeviceError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        command_validation.check_buffer(nbytes, usage, LIMITS)  # type: ignore[arg-type]


def test_a_buffer_of_the_largest_size_is_accepted() -> None:
    command_validation.check_buffer(1 << 20, "readback", LIMITS)
    assert [command_validation.padded_size(n) for n in (0, 1, 4, 5)] == [4, 4, 4, 8]


@pytest.mark.parametrize(
    ("layout", "kind", "message"),
    [
        (("read", "both"), DeviceError, "unknown access 'both'"),
        (("uniform", "read"), DeviceError, "only the last"),
        (("uniform", "uniform"), DeviceError, "only the last"),
        (("read",) * 4, LimitExceeded, "needs 4, max_storage.* is 3"),
    ],
)
def test_invalid_layouts_are_refused(
    layout: tuple[str, ...], kind: type[DeviceError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        command_validation.check_layout(layout, LIMITS)  # type: ignore[arg-type]


def test_a_uniform_does_not_count_as_storage() -> None:
    command_validation.check_layout(("read", "read", "write", "uniform"), LIMITS)


def test_a_write_is_split_into_words_and_a_padded_tail() -> None:
    for length in range(9):
        data = memoryview(bytes(range(1, length + 1)))
        words, tail = command_validation.check_write(BIG, 4, data, BUFFERS)
        assert words.nbytes == length // 4 * 4
        assert len(tail) == (4 if length % 4 else 0)
        assert (bytes(words) + tail).rstrip(b"\0") == bytes(data)


def test_a_write_accepts_any_contiguous_shape() -> None:
    square = memoryview(bytes(16)).cast("f", (2, 2))
    assert command_validation.check_write(BIG, 0, square, BUFFERS)[0].nbytes == 16


@pytest.mark.parametrize(
    ("handle", "offset", "data", "message"),
    [
        (GONE, 0, memoryview(b"1234"), "buffer 99 does not exist"),
        (BIG, 2, memoryview(b"1234"), "the offset is 2"),
        (BIG, 16384, memoryview(b"1"), "16385.*16384"),
        (BIG, -4, memoryview(b"1234"), "has 16384 bytes"),
        (BIG, 0, memoryview(b"12345678")[::2], "not contiguous"),
    ],
)
def test_invalid_writes_are_refused(
    handle: int, offset: int, data: memoryview, message: str
) -> None:
    with pytest.raises(DeviceError, match=message):
        command_validation.check_write(handle, offset, data, BUFFERS)


@pytest.mark.parametrize(
    ("handle", "offset", "nbytes", "message"),
    [
        (GONE, 0, 4, "buffer 99 does not exist"),
        (UNIFORM, 0, 4, "uniform buffer"),
        (BIG, 0, -1, "the length is -1"),
        (BIG, 16383, 2, "16385.*16384"),
    ],
)
def test_invalid_reads_are_refused(
    handle: int, offset: int, nbytes: int, message: str
) -> None:
    with pytest.raises(DeviceError, match=message):
        command_validation.check_read(handle, offset, nbytes, BUFFERS)


@pytest.mark.parametrize(
    ("size", "constants", "message"),
    [
        ("257", {}, "needs 257, max_compute_workgroup_size_x is 256"),
        ("W", {"W": 512.0}, "needs 512, max_compute_workgroup_size_x is 256"),
        ("W", {}, "needs 300"),
        ("16u, W, 2", {"W": 16.0}, "needs 512, max_compute_invocations"),
    ],
)
def test_a_workgroup_too_large_is_refused(
    size: str, constants: dict[str, float], message: str
) -> None:
    """An override may not make a workgroup too large, which wgpu does not check."""
    source = f"override W: u32 = 300u; @compute @workgroup_size({size}) fn main() {{}}"
    with pytest.raises(LimitExceeded, match=message):
        command_validation.check_workgroup(source, constants, LIMITS)


@pytest.mark.parametrize("size", ["256", "W", "16, 16", "W, 2, 2,", "UNKNOWN"])
def test_a_workgroup_that_fits_or_is_unknown_is_accepted(size: str) -> None:
    source = f"override W : i32 = 64; @compute @workgroup_size({size}) fn main() {{}}"
    command_validation.check_workgroup(source, {}, LIMITS)
    command_validation.check_workgroup("no shader at all", {}, LIMITS)
