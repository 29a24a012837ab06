"""The wheel's entry in Pyodide's lock file."""

from __future__ import annotations

from pathlib import Path

import pytest
from assembly.errors import SiteError
from assembly.pyodide_lock import lock_with_wheel

from tests.unit.site.conftest import (
    WHEEL_METADATA,
    SmallPyodide,
    make_wheel,
    sha256_hex,
)


def test_only_what_the_wheel_needs_is_kept(
    small_pyodide: SmallPyodide, wheel: Path
) -> None:
    """The lock keeps its facts, rlxweb, NumPy, and what NumPy itself needs."""
    lock = lock_with_wheel(small_pyodide.lock, wheel)
    assert list(lock["packages"]) == ["blas", "numpy", "rlxweb"]
    assert lock["info"] == small_pyodide.lock["info"]
    assert lock["packages"]["numpy"] == small_pyodide.lock["packages"]["numpy"]


def test_the_entry_has_name_hash_and_dependencies(
    small_pyodide: SmallPyodide, wheel: Path
) -> None:
    """Requirements of desktops or extras are not among the dependencies."""
    own_entry = lock_with_wheel(small_pyodide.lock, wheel)["packages"]["rlxweb"]
    assert own_entry["file_name"] == wheel.name
    assert own_entry["sha256"] == sha256_hex(wheel.read_bytes())
    assert own_entry["version"] == "1.2.3"
    assert own_entry["depends"] == ["numpy"]
    assert own_entry["imports"] == ["rlxweb"]


def test_the_entry_has_the_fields_of_the_others(
    small_pyodide: SmallPyodide, wheel: Path
) -> None:
    """The entry has the fields of Pyodide 0.27, and the additional one of 314."""
    lock = small_pyodide.lock
    assert lock_with_wheel(lock, wheel)["packages"]["rlxweb"].keys() == (
        lock["packages"]["numpy"].keys()
    )
    lock["packages"]["numpy"]["tool"] = {}
    assert lock_with_wheel(lock, wheel)["packages"]["rlxweb"]["tool"] == {}


def test_an_unknown_field_is_refused(small_pyodide: SmallPyodide, wheel: Path) -> None:
    """A field of a later Pyodide is refused, since its value can only be guessed."""
    lock = small_pyodide.lock
    lock["packages"]["numpy"]["signature"] = "…"
    with pytest.raises(SiteError, match="different fields: signature"):
        lock_with_wheel(lock, wheel)


@pytest.mark.parametrize(
    ("requirement", "available"),
    [("numpy>=2.4", "has 2.0.9"), ("wgpu>=0.32", "has none")],
)
def test_an_unmet_requirement_is_refused(
    small_pyodide: SmallPyodide, tmp_path: Path, requirement: str, available: str
) -> None:
    """A requirement that Pyodide does not meet is named together with the available
    version.
    """
    needy = make_wheel(tmp_path, f"{WHEEL_METADATA}Requires-Dist: {requirement}\n")
    with pytest.raises(
        SiteError, match=f"needs {requirement} in a tab; .* {available}"
    ):
        lock_with_wheel(small_pyodide.lock, needy)


def test_a_wheel_of_another_package_is_refused(
    small_pyodide: SmallPyodide, tmp_path: Path
) -> None:
    """A wheel is identified by its metadata."""
    other_wheel = make_wheel(tmp_path, WHEEL_METADATA.replace("rlxweb", "rlxwep"))
    with pytest.raises(SiteError, match="expected the package rlxweb, got rlxwep"):
        lock_with_wheel(small_pyodide.lock, other_wheel)
