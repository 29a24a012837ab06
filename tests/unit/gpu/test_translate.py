"""What wgpu raises becomes one error of ours, by kind and by text."""

from __future__ import annotations

import pytest

from rlxweb.errors import DeviceError, DeviceLost, OutOfMemory, ShaderRejected
from rlxweb.gpu.translate import translate

LOST = "Validation Error\n\nCaused by:\n  In wgpuQueueSubmit\n    Parent device is lost"


class GPUOutOfMemoryError(Exception):
    """The error as wgpu names it."""


@pytest.mark.parametrize(
    ("error", "otherwise", "kind"),
    [
        (RuntimeError(LOST), DeviceError, DeviceLost),
        (RuntimeError(LOST), ShaderRejected, DeviceLost),
        (AttributeError("no poller"), DeviceLost, DeviceLost),
        (GPUOutOfMemoryError("Not enough memory left."), DeviceError, OutOfMemory),
        (GPUOutOfMemoryError("Not enough memory left."), ShaderRejected, OutOfMemory),
        (ValueError("parsing error"), ShaderRejected, ShaderRejected),
        (ValueError("bad usage"), DeviceError, DeviceError),
    ],
)
def test_the_kind_is_told(
    error: Exception, otherwise: type[DeviceError], kind: type[DeviceError]
) -> None:
    ours = translate(error, "do it", otherwise, "fn main() {}")
    assert type(ours) is kind
    assert ours.doing == "do it"
    assert ours.problem
    assert ours.hint
    assert "Validation Error" not in str(ours)


def test_a_refused_shader_keeps_its_source() -> None:
    ours = translate(ValueError("x"), "compile", ShaderRejected, "fn main() {}")
    assert isinstance(ours, ShaderRejected)
    assert ours.source == "fn main() {}"


def test_an_error_without_text_still_says_something() -> None:
    assert translate(RuntimeError(), "read", DeviceLost, "").problem == "RuntimeError"
