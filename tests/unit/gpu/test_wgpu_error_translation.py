"""Errors of wgpu are translated into one of ours, by class and by text."""

from __future__ import annotations

import pytest

from rlxweb.core.errors import DeviceError, DeviceLost, OutOfMemory, ShaderRejected
from rlxweb.gpu.wgpu_error_translation import translate_error

DEVICE_LOST_MESSAGE = (
    "Validation Error\n\nCaused by:\n  In wgpuQueueSubmit\n    Parent device is lost"
)


class GPUOutOfMemoryError(Exception):
    """Error with the name that wgpu uses."""


@pytest.mark.parametrize(
    ("error", "otherwise", "kind"),
    [
        (RuntimeError(DEVICE_LOST_MESSAGE), DeviceError, DeviceLost),
        (RuntimeError(DEVICE_LOST_MESSAGE), ShaderRejected, DeviceLost),
        (AttributeError("no poller"), DeviceLost, DeviceLost),
        (GPUOutOfMemoryError("Not enough memory left."), DeviceError, OutOfMemory),
        (GPUOutOfMemoryError("Not enough memory left."), ShaderRejected, OutOfMemory),
        (ValueError("parsing error"), ShaderRejected, ShaderRejected),
        (ValueError("bad usage"), DeviceError, DeviceError),
    ],
)
def test_the_error_class_is_chosen(
    error: Exception, otherwise: type[DeviceError], kind: type[DeviceError]
) -> None:
    ours = translate_error(error, "do it", otherwise, "fn main() {}")
    assert type(ours) is kind
    assert ours.doing == "do it"
    assert ours.problem
    assert ours.hint
    assert "Validation Error" not in str(ours)


def test_a_refused_shader_keeps_its_source() -> None:
    ours = translate_error(ValueError("x"), "compile", ShaderRejected, "fn main() {}")
    assert isinstance(ours, ShaderRejected)
    assert ours.source == "fn main() {}"


def test_an_error_without_text_shows_its_class() -> None:
    assert (
        translate_error(RuntimeError(), "read", DeviceLost, "").problem
        == "RuntimeError"
    )
