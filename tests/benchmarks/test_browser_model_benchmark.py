"""Tests of the browser's network benchmark: evaluation of a page's results, integrity
of npm packages.
"""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from tests.benchmarks import npm_packages
from tests.benchmarks.browser_model_benchmark import (
    CPU_PEER,
    GPU_PEER,
    check_peers,
    decode_array,
    encode_array,
)
from tests.benchmarks.npm_packages import ONNX_RUNTIME, unpack_package
from tests.benchmarks.report import document

EXPECTED = {"y": np.float32([[1, 2], [3, -4]])}
WASM, WEBGPU = "onnxruntime-web, wasm", "onnxruntime-web, webgpu"


def page_row(name: str, ms: float, y: Any = EXPECTED["y"]) -> dict[str, Any]:
    """Return a page's report of a peer whose calls take `ms` milliseconds."""
    answers = {"y": encode_array(np.asarray(y, np.float32))}
    times_ms = [ms, ms * 1.2, ms * 0.8]
    return {
        "name": name,
        "first": 9 * ms,
        "answers": answers,
        "calls": 2,
        "taken": times_ms,
    }


def test_losing_and_failed_rows_are_kept() -> None:
    """A peer that fails or is wrong has no time, and its reason is reported."""
    page = [page_row(GPU_PEER, 4.0), page_row(CPU_PEER, 6.0), page_row(WASM, 2.0)]
    page += [{"name": f"{WASM}, 2 threads", "error": "no memory is shared"}]
    page += [
        page_row(WEBGPU, 0.1, EXPECTED["y"] + 1),
        page_row(f"{WEBGPU} by JSEP", 8.0),
    ]
    cell = check_peers("tab net", page, EXPECTED)
    assert [r.name for r in cell.rows] == [
        GPU_PEER,
        CPU_PEER,
        WASM,
        f"{WEBGPU} by JSEP",
    ]
    assert [(v.ratio, v.is_met) for v in cell.goal_results] == [
        (0.5, True),
        (3.0, False),
    ]
    assert cell.absent_peers[f"{WASM}, 2 threads"] == "no memory is shared"
    assert "relative error 0.25" in cell.absent_peers[WEBGPU]
    (result,) = document([cell], {}, {})["cells"]
    assert result["rows"][0]["first_ms"] == pytest.approx(36)
    assert result["rows"][2]["ratio"] == pytest.approx({GPU_PEER: 2.0, CPU_PEER: 3.0})


def test_a_wrong_answer_of_rlxweb_leaves_no_rows() -> None:
    cell = check_peers(
        "tab net",
        [page_row(GPU_PEER, 1.0, EXPECTED["y"] * 1.01), page_row(WASM, 2.0)],
        EXPECTED,
    )
    assert not cell.rows
    assert cell.answer_error == f"{GPU_PEER}, y: relative error 0.01"


def test_arrays_survive_the_round_trip_through_a_page() -> None:
    for array in (EXPECTED["y"], np.array(16000), np.zeros((0, 3), np.int32)):
        decoded = decode_array(encode_array(array))
        assert decoded.dtype == array.dtype
        np.testing.assert_array_equal(decoded, array)


def test_other_code_than_npm_published_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code other than npm's is refused, from the cache and from the network."""
    monkeypatch.setattr(npm_packages, "CACHE", tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    cached_archive = tmp_path / "kept" / f"onnxruntime-web-{ONNX_RUNTIME.version}.tgz"
    source = tmp_path / "package" / "dist" / "a.mjs"
    source.parent.mkdir(parents=True)
    source.write_text("export {}", "utf-8")
    with tarfile.open(cached_archive, "w:gz") as archive:
        archive.add(source, "package/dist/a.mjs")
        archive.add(source, "package/dist/a.mjs.map")
    package = replace(ONNX_RUNTIME, sha512=npm_packages._sha512(cached_archive))
    dist = unpack_package(package, tmp_path / "out", (".mjs",))
    assert [path.name for path in dist.iterdir()] == ["a.mjs"]

    def npm(command: list[str], cwd: str, **_: Any) -> Mock:
        (Path(cwd) / "came.tgz").write_bytes(b"something else")
        return Mock(stdout="came.tgz\n")

    monkeypatch.setattr(npm_packages.subprocess, "run", npm)
    with pytest.raises(ValueError, match=r"its sha512 is .*, not q0y"):
        unpack_package(ONNX_RUNTIME, tmp_path / "out")
