"""What is made of a page's numbers, and that others' code is what npm published."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from tests.benchmarks import npm_packages
from tests.benchmarks.networks_in_tab import CPU, GPU, heard, judged, told
from tests.benchmarks.npm_packages import ONNX_RUNTIME, unpacked
from tests.benchmarks.report import document

RIGHT = {"y": np.float32([[1, 2], [3, -4]])}
WASM, WEBGPU = "onnxruntime-web, wasm", "onnxruntime-web, webgpu"


def row(name: str, ms: float, y: Any = RIGHT["y"]) -> dict[str, Any]:
    """What a page says of a peer whose calls take so long."""
    answers = {"y": told(np.asarray(y, np.float32))}
    taken = [ms, ms * 1.2, ms * 0.8]
    return {
        "name": name,
        "first": 9 * ms,
        "answers": answers,
        "calls": 2,
        "taken": taken,
    }


def test_losing_and_refused_rows_stay() -> None:
    """A peer that fails or is wrong has no time, and its reason stands there."""
    page = [row(GPU, 4.0), row(CPU, 6.0), row(WASM, 2.0)]
    page += [{"name": f"{WASM}, 2 threads", "error": "no memory is shared"}]
    page += [row(WEBGPU, 0.1, RIGHT["y"] + 1), row(f"{WEBGPU} by JSEP", 8.0)]
    cell = judged("tab net", page, RIGHT)
    assert [r.name for r in cell.rows] == [GPU, CPU, WASM, f"{WEBGPU} by JSEP"]
    assert [(v.ratio, v.met) for v in cell.verdicts] == [(0.5, True), (3.0, False)]
    assert cell.absent[f"{WASM}, 2 threads"] == "no memory is shared"
    assert "relative error 0.25" in cell.absent[WEBGPU]
    (told_,) = document([cell], {}, {})["cells"]
    assert told_["rows"][0]["first_ms"] == pytest.approx(36)
    assert told_["rows"][2]["ratio"] == pytest.approx({GPU: 2.0, CPU: 3.0})


def test_a_wrong_answer_of_ours_leaves_no_rows() -> None:
    cell = judged("tab net", [row(GPU, 1.0, RIGHT["y"] * 1.01), row(WASM, 2.0)], RIGHT)
    assert not cell.rows
    assert cell.wrong == f"{GPU}, y: relative error 0.01"


def test_arrays_come_back_from_a_page() -> None:
    for array in (RIGHT["y"], np.array(16000), np.zeros((0, 3), np.int32)):
        back = heard(told(array))
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)


def test_other_code_than_npm_published_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code other than npm's is refused, be it in the cache or from the network."""
    monkeypatch.setattr(npm_packages, "CACHE", tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    kept = tmp_path / "kept" / f"onnxruntime-web-{ONNX_RUNTIME.version}.tgz"
    source = tmp_path / "package" / "dist" / "a.mjs"
    source.parent.mkdir(parents=True)
    source.write_text("export {}", "utf-8")
    with tarfile.open(kept, "w:gz") as archive:
        archive.add(source, "package/dist/a.mjs")
        archive.add(source, "package/dist/a.mjs.map")
    known = replace(ONNX_RUNTIME, sha512=npm_packages._sha512(kept))
    dist = unpacked(known, tmp_path / "out", (".mjs",))
    assert [path.name for path in dist.iterdir()] == ["a.mjs"]

    def npm(command: list[str], cwd: str, **_: Any) -> Mock:
        (Path(cwd) / "came.tgz").write_bytes(b"something else")
        return Mock(stdout="came.tgz\n")

    monkeypatch.setattr(npm_packages.subprocess, "run", npm)
    with pytest.raises(ValueError, match=r"its sha512 is .*, not q0y"):
        unpacked(ONNX_RUNTIME, tmp_path / "out")
