"""The locks: everything `./dev` installs, pinned with hashes, for every platform."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "tests" / "locks"
EXTRAS = {
    "demo": ("eeg", "plot"),
    "site": ("docs", "web"),
    "test": ("test", "eeg", "plot", "docs", "web"),
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {
    "linux": ("Linux", "posix"),
    "darwin": ("Darwin", "posix"),
    "win32": ("Windows", "nt"),
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@dataclass(frozen=True, slots=True)
class Pin:
    """A line of a lock with its hashes."""

    asked: Requirement
    hashes: tuple[str, ...]

    @property
    def name(self) -> str:
        return canonicalize_name(self.asked.name)

    @property
    def version(self) -> str:
        (one,) = self.asked.specifier
        assert one.operator == "=="
        return one.version


def pins(lock: str) -> list[Pin]:
    """What a lock says; nothing in it is anything else."""
    text = (LOCKS / f"{lock}.txt").read_text("utf-8")
    found = []
    for entry in text.replace("\\\n", " ").splitlines():
        line, *hashes = entry.split("--hash=")
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", h.strip()) for h in hashes)
        found.append(Pin(Requirement(line), tuple(hashes)))
    return found


def environments() -> list[dict[str, str]]:
    """Those we support, as markers see them."""
    here = {**default_environment(), "extra": ""}
    return [
        {
            **here,
            "python_version": python,
            "python_full_version": f"{python}.9",
            "sys_platform": platform,
            "platform_system": system,
            "os_name": os_name,
        }
        for python in PYTHONS
        for platform, (system, os_name) in PLATFORMS.items()
    ]


@pytest.mark.parametrize("lock", [*EXTRAS, "uv"])
def test_every_line_is_one_version_with_hashes_of_no_named_host(lock: str) -> None:
    """And each package once in every environment."""
    all_ = pins(lock)
    assert all_
    assert all(pin.version and pin.hashes for pin in all_)
    assert "://" not in (LOCKS / f"{lock}.txt").read_text("utf-8")
    for environment in environments():
        names = [
            pin.name
            for pin in all_
            if pin.asked.marker is None or pin.asked.marker.evaluate(environment)
        ]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("lock", EXTRAS)
def test_what_pyproject_asks_for_is_in_the_lock(lock: str) -> None:
    """On every platform and Python, with the tools that build an editable install; a
    requirement that was changed without `./dev lock` is found here.
    """
    asked = [*PROJECT["dependencies"], "hatchling>=1.27,<2", "editables>=0.5"]
    for extra in EXTRAS[lock]:
        asked += PROJECT["optional-dependencies"][extra]
    for environment in environments():
        there = {
            pin.name: pin.version
            for pin in pins(lock)
            if pin.asked.marker is None or pin.asked.marker.evaluate(environment)
        }
        for need in map(Requirement, asked):
            if need.marker is None or need.marker.evaluate(environment):
                assert need.specifier.contains(there[canonicalize_name(need.name)])


@pytest.mark.parametrize("lock", EXTRAS)
def test_all_that_the_pinned_packages_need_is_pinned(lock: str) -> None:
    """As their own metadata says, of those that are installed here."""
    there = {pin.name: pin.version for pin in pins(lock)}
    for name in there:
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # for another platform
        for need in map(Requirement, needs):
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                assert canonicalize_name(need.name) in there, f"{name} needs {need}"


def test_the_locks_agree_with_each_other() -> None:
    """One version of a package, whichever command comes first."""
    wide = {(pin.name, pin.version) for pin in pins("test")}
    for lock in ("demo", "site"):
        assert {(pin.name, pin.version) for pin in pins(lock)} <= wide


STUB = """\
#!/bin/sh
case "$*" in
    *'pip install'*) echo "$*" >>"$LOG"; exit "$PIP_EXIT" ;;
esac
exit 0
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """`dev` with a Python that writes down what it is asked to install."""
    for name in ("dev", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "dev").unlink()
    (tmp_path / "dev").write_text((ROOT / "dev").read_text("utf-8"), "utf-8")
    (tmp_path / "dev").chmod(0o755)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "locks").symlink_to(LOCKS, target_is_directory=True)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(STUB, "utf-8")
    python.chmod(0o755)
    return tmp_path


def installs(checkout: Path, code: int = 0, **more: str) -> tuple[int, list[str]]:
    """The exit code of `./dev lint`, and what it had pip install."""
    log = checkout / "log"
    log.unlink(missing_ok=True)
    said = subprocess.run(
        [checkout / "dev", "lint"],
        env={**os.environ, "LOG": str(log), "PIP_EXIT": str(code), **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return said.returncode, log.read_text("utf-8").splitlines() if log.exists() else []


def test_dev_installs_by_hash_and_nothing_besides(checkout: Path) -> None:
    """The checkout itself without its requirements, and once."""
    code, (tools, package) = installs(checkout)
    assert code == 0
    assert f"--require-hashes -r {checkout}/tests/locks/test.txt" in tools
    assert f"--no-deps --no-build-isolation -e {checkout}" in package
    assert installs(checkout) == (0, [])


def test_dev_stops_where_a_hash_is_wrong(checkout: Path) -> None:
    """It does not go on without hashes by itself."""
    code, asked = installs(checkout, code=1)
    assert code == 1
    assert len(asked) == 1
    assert "--require-hashes" in asked[0]


def test_dev_takes_other_versions_when_told_to(checkout: Path) -> None:
    """For a platform the lock knows nothing of; the locked install comes back after."""
    code, asked = installs(checkout, RLXWEB_UNLOCKED="1")
    assert code == 0
    assert len(asked) == 1
    assert f"-e {checkout}[test,eeg,plot,docs,web]" in asked[0]
    assert any("--require-hashes" in line for line in installs(checkout)[1])
