"""Test samples of the Welch ops, which every engine must compute correctly."""

from __future__ import annotations

from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.sample import Drawn, Sample


def _case(
    shape: tuple[int, int], n: int, dtype: DType = DType.F32, **attrs: Any
) -> Sample:
    attrs = {"hop": max(1, n // 2), **attrs}
    return Sample((Drawn(shape, dtype), Drawn((n,), dtype, 0.1, 1.0)), attrs)


def welch_power_samples(k: int | None) -> tuple[Sample, ...]:
    """Return samples of rows and windows of every kind, with k peaks where the op takes
    a k.
    """
    k_attr: dict[str, Any] = {} if k is None else {"k": k}
    single_peak_attr: dict[str, Any] = {} if k is None else {"k": 1}
    return (
        _case((3, 384), 256, **k_attr),
        _case((5, 640), 256, detrend="constant", doubling=True, scale=0.01, **k_attr),
        _case((2, 640), 256, detrend="linear", nfft=300, **k_attr),
        _case((2, 700), 256, segments=3, hop=100, nfft=512, **k_attr),
        _case((9, 1536), 1024, **k_attr),
        _case((2, 90), 30, detrend="linear", doubling=True, **k_attr),
        _case((3, 67), 31, detrend="constant", doubling=True, nfft=67, **k_attr),
        _case((2, 70), 11, hop=11, segments=1, **k_attr),
        _case((0, 40), 16, **k_attr),
        _case((2, 5), 1, detrend="linear", **single_peak_attr),
        _case((2, 5), 2, doubling=True, **single_peak_attr),
        _case((65_537, 2), 2, hop=1, **single_peak_attr),
        _case((2, 9000), 64, detrend="constant", **k_attr),
        _case((1, 3300), 256, hop=7, detrend="linear", doubling=True, **k_attr),
        _case((2, 384), 256, DType.F64, detrend="linear", **k_attr),
    )


PEAK_SAMPLES = (
    Sample((Drawn((5, 129)),), {"k": 16}),
    Sample((Drawn((4, 40), whole=True),), {"k": 7}, "ties"),
    Sample((Drawn((3, 5), low=0.0, high=0.0),), {"k": 5}, "all equal"),
    Sample((Drawn((65_537, 2)),), {"k": 1}),
    Sample((Drawn((2, 5000)),), {"k": 3}),
    Sample((Drawn((3, 300), whole=True),), {"k": 200}, "many ties"),
    Sample((Drawn((0, 4)),), {"k": 2}),
    Sample((Drawn((1, 1)),), {"k": 1}),
    Sample((Drawn((3, 9), DType.F64),), {"k": 4}),
)
SEGMENT_SAMPLES = (
    Sample((Drawn((4, 512)),), {"k": 16, "n_segments": 2}),
    Sample((Drawn((6, 60)),), {"k": 3, "n_segments": 3}),
    Sample((Drawn((1, 2)),), {"k": 1, "n_segments": 1}),
    Sample((Drawn((3, 2)),), {"k": 1, "n_segments": 1}),
    Sample((Drawn((5, 14)),), {"k": 4, "n_segments": 1}),
    Sample((Drawn((0, 8)),), {"k": 2, "n_segments": 2}),
    Sample((Drawn((131_074, 2), low=0.0),), {"k": 1, "n_segments": 2}),
    Sample((Drawn((8, 32), DType.F64),), {"k": 2, "n_segments": 4}),
)
