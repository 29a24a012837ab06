"""What is assumed of an engine nobody has measured yet.

Points in the form of a calibration, so that one model prices both. The CPU's were
measured with NumPy 2.4 on two cores of a 2020s server; those of a GPU are what a small
discrete one does, careful rather than keen: a device that is worth more shows it once
it is measured. Software adapters share the CPU's cores and are not guessed at.
"""

from __future__ import annotations

from functools import cache

from rlxweb.cost.curve import curve_of
from rlxweb.cost.record import Calibration, Point
from rlxweb.cost.welch_model import WelchSize, transform_work

_US = 1e3
_GPU_TRANSFERS = tuple(
    Point(what, {"bytes": nbytes}, ns)
    for what in ("upload", "readback")
    for nbytes, ns in ((65_536, 60 * _US), (16_777_216, 3_400 * _US))
)
# Microseconds on the desktop and in a tab.
_CPU_US: tuple[tuple[str, dict[str, int], float, float], ...] = (
    ("call", {}, 1.5, 12),
    ("copy", {"bytes": 65_536}, 4, 5),
    ("copy", {"bytes": 134_217_728}, 17_000, 25_000),
    ("elementwise", {"bytes": 1_048_576, "flops": 7_864_320}, 3_000, 10_000),
    ("matmul", {"m": 64, "k": 64, "n": 64}, 18, 150),
    ("matmul", {"m": 512, "k": 512, "n": 512}, 3_300, 250_000),
    ("fft", {"n": 128, "rows": 256}, 190, 800),
    ("fft", {"n": 2048, "rows": 64}, 900, 4_000),
)
# (n, segments) → microseconds for 1, 32 and 1024 rows, k = 16.
_HOST_US = {
    (64, 2): (55, 126, 1_250),
    (64, 8): (48, 114, 2_400),
    (512, 2): (89, 217, 4_900),
    (512, 8): (70, 605, 13_700),
    (4096, 2): (105, 1_830, 37_000),
    (4096, 8): (235, 3_900, 112_000),
}


@cache
def assumed_cpu(in_a_tab: bool = False) -> Calibration:
    """NumPy on an ordinary machine, or compiled to WebAssembly on the same one."""
    # In a tab: one thread and no BLAS, products suffer most, copies least.
    slower = 5.0 if in_a_tab else 1.0
    welch = [
        Point("welch_host", _size(n, segments, rows), slower * us * _US)
        for (n, segments), times in _HOST_US.items()
        for rows, us in zip((1, 32, 1024), times, strict=True)
    ]
    others = (Point(what, size, us[in_a_tab] * _US) for what, size, *us in _CPU_US)
    return _record("cpu", "NumPy", (*others, *welch))


@cache
def assumed_gpu() -> Calibration:
    """A small GPU of its own hardware."""
    up = curve_of(p for p in _GPU_TRANSFERS if p.what == "upload")
    down = curve_of(p for p in _GPU_TRANSFERS if p.what == "readback")
    welch = []
    for n in (64, 512, 4096):
        for segments in (2, 8):
            for rows in (1, 32, 1024):
                one = WelchSize(
                    n, segments, rows, 16, n + (segments - 1) * max(1, n // 2)
                )
                chain = segments * transform_work(n)
                ns = 155 * _US + up.at(one.input_bytes) + down.at(one.output_bytes)
                ns += 1.0 * chain + 0.01 * rows * chain
                welch.append(Point("welch_fused", _size(n, segments, rows), ns))
    others = (
        Point("submit", {}, 150 * _US),
        Point("dispatch", {}, 5 * _US),
        Point("copy", {"bytes": 134_217_728}, 1_300 * _US),
        Point("elementwise", {"bytes": 8_388_608, "flops": 33_554_432}, 120 * _US),
        Point("matmul", {"m": 256, "k": 256, "n": 256}, 60 * _US),
        Point("matmul", {"m": 1024, "k": 1024, "n": 1024}, 1_500 * _US),
        Point("fft", {"n": 128, "rows": 256}, 20 * _US),
        Point("fft", {"n": 2048, "rows": 256}, 60 * _US),
    )
    return _record("gpu", "a GPU", (*others, *_GPU_TRANSFERS, *welch))


def _size(n: int, segments: int, rows: int) -> dict[str, int]:
    return {"n": n, "segments": segments, "rows": rows, "k": 16}


def _record(device: str, engine: str, points: tuple[Point, ...]) -> Calibration:
    return Calibration(device, engine, "assumed", "", "", "", points)
