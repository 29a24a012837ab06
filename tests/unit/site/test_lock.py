"""Our wheel in Pyodide's lock file."""

from __future__ import annotations

from pathlib import Path

import pytest
from assembly.errors import SiteError
from assembly.lock import spliced

from tests.unit.site.conftest import METADATA, Small, digest, make_wheel


def test_only_what_the_wheel_needs_is_kept(small: Small, wheel: Path) -> None:
    """The lock keeps its facts, rlxweb, NumPy, and what NumPy itself needs."""
    lock = spliced(small.lock, wheel)
    assert list(lock["packages"]) == ["blas", "numpy", "rlxweb"]
    assert lock["info"] == small.lock["info"]
    assert lock["packages"]["numpy"] == small.lock["packages"]["numpy"]


def test_our_entry_says_name_hash_and_needs_of_the_wheel(
    small: Small, wheel: Path
) -> None:
    """What only a desktop or an extra needs is not among them."""
    ours = spliced(small.lock, wheel)["packages"]["rlxweb"]
    assert ours["file_name"] == wheel.name
    assert ours["sha256"] == digest(wheel.read_bytes())
    assert ours["version"] == "1.2.3"
    assert ours["depends"] == ["numpy"]
    assert ours["imports"] == ["rlxweb"]


def test_our_entry_has_the_fields_of_the_others(small: Small, wheel: Path) -> None:
    """Our lock entry has the fields of Pyodide 0.27, and the one more of 314."""
    lock = small.lock
    assert spliced(lock, wheel)["packages"]["rlxweb"].keys() == (
        lock["packages"]["numpy"].keys()
    )
    lock["packages"]["numpy"]["tool"] = {}
    assert spliced(lock, wheel)["packages"]["rlxweb"]["tool"] == {}


def test_a_field_nobody_knows_is_refused(small: Small, wheel: Path) -> None:
    """A later Pyodide may have it; guessing its value would be worse."""
    lock = small.lock
    lock["packages"]["numpy"]["signature"] = "…"
    with pytest.raises(SiteError, match="differ in signature"):
        spliced(lock, wheel)


@pytest.mark.parametrize(
    ("line", "has"), [("numpy>=2.4", "has 2.0.9"), ("wgpu>=0.32", "has none")]
)
def test_a_need_that_pyodide_cannot_meet_is_refused(
    small: Small, tmp_path: Path, line: str, has: str
) -> None:
    """A need that Pyodide has not is named with what there is."""
    needy = make_wheel(tmp_path, f"{METADATA}Requires-Dist: {line}\n")
    with pytest.raises(SiteError, match=f"needs {line} in a tab; .* {has}"):
        spliced(small.lock, needy)


def test_another_package_is_not_taken_for_ours(small: Small, tmp_path: Path) -> None:
    """A wheel is judged by its metadata."""
    other = make_wheel(tmp_path, METADATA.replace("rlxweb", "rlxwep"))
    with pytest.raises(SiteError, match="it is rlxwep"):
        spliced(small.lock, other)
