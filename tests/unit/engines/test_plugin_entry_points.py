"""Engines added by other packages: found by name, loaded late, isolated when broken."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.device import parse_device
from rlxweb.core.errors import AdapterMissing, UnknownDevice
from rlxweb.engines.pool import pool
from rlxweb.engines.registry import absence_reason, engine_labels, refused_entry_points
from rlxweb.select.policy import DevicePolicy
from tests.cli_runners import CommandRunner

InstallPackage = Callable[..., None]
WORKING_ENGINE = """
from rlxweb.engines.registry import Row
from tests.numpy_test_engine import NumpyTestEngineOpener
opener = NumpyTestEngineOpener()
row = opener.registry_row(named_only=False)
"""


@pytest.fixture
def install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InstallPackage]:
    """Return a function that puts a package with entry points on the path, as pip
    would.
    """

    def install_package(package: str, entry_points: str, **modules: str) -> None:
        folder = tmp_path / package
        dist_info = folder / f"{package}-1.0.dist-info"
        dist_info.mkdir(parents=True)
        metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        (dist_info / "METADATA").write_text(metadata)
        (dist_info / "entry_points.txt").write_text(
            f"[rlxweb.backends]\n{entry_points}\n"
        )
        for name, text in modules.items():
            (folder / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(folder)

    modules_before = set(sys.modules)
    yield install_package
    pool.close_all()
    for name in set(sys.modules) - modules_before:
        module_file = getattr(sys.modules[name], "__file__", None) or ""
        if module_file.startswith(str(tmp_path)):
            del sys.modules[name]


def test_package_engine_is_a_full_device(install: InstallPackage) -> None:
    """The package is imported only when its device, or every device, is requested."""
    install("strange", "strange = strange_engine:row", strange_engine=WORKING_ENGINE)
    assert "strange" in engine_labels()
    assert "strange_engine" not in sys.modules
    device = parse_device("Strange")
    assert device.display == "Made"
    assert DevicePolicy.all().candidates[-2:] == (device, "cpu")
    assert device in rlx.available_devices()
    graph = rlx.Graph("double")
    graph.set_outputs([graph.input("x", (4,)) * 2.0])
    x = np.arange(4, dtype=np.float32)
    (y,) = rlx.Session("strange").compile(graph).run({"x": x})
    np.testing.assert_array_equal(y, x * 2)
    rows = {row.label: row for row in rlx.device_report()}
    assert rows["strange"].engine == "Made 1.0"
    assert rows["strange"].facts["package"] == "strange 1.0"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_l"),
        ("raise SystemExit('no licence')", "SystemExit: no licence"),
        ("print('garbage')\nrow = 5", "the entry point is 5; expected a rlxweb.*Row"),
        ("other = 1", "AttributeError"),
        (
            "from rlxweb.engines.registry import Row\n"
            "async def open_it(adapter): raise OSError('libx.so: bad ABI')\n"
            "row = Row(open_it)",
            r"OSError: libx\.so: bad ABI",
        ),
        (
            "from rlxweb.engines.registry import Row\n"
            "from tests.numpy_test_engine import NumpyTestEngine\n"
            "async def open_it(adapter): return NumpyTestEngine(result_offset=1.0)\n"
            "row = Row(open_it)",
            "Made 1.0 computes a wrong result",
        ),
        (
            "import numpy as np\n"
            "from rlxweb.engines.registry import Row\n"
            "from tests.numpy_test_engine import NumpyTestEngine\n"
            "class Wide(NumpyTestEngine):\n"
            "    async def run(self, program, feeds, keep=()):\n"
            "        outputs = await super().run(program, feeds, keep)\n"
            "        return [output.astype(np.float64) for output in outputs]\n"
            "async def open_it(adapter): return Wide()\n"
            "row = Row(open_it)",
            r"Made 1\.0 returned output 0 as \[3\] float64; .* it as \[3\] f32",
        ),
        (
            "from rlxweb.engines.registry import Row\n"
            "row = Row(None, present=lambda: 1 / 0)",
            "ZeroDivisionError",
        ),
    ],
)
def test_broken_package_is_reported(
    install: InstallPackage, call: CommandRunner, text: str, words: str
) -> None:
    """A broken package shows in the report, and in the error for a request of that
    device alone.
    """
    install("strange", "strange = strange_engine:row", strange_engine=text)
    result = call("devices", "strange", "--json")
    assert result.code == 0, result.err
    (row,) = result.document["devices"]
    assert not row["available"]
    with pytest.raises(AdapterMissing, match=words):
        rlx.Session("strange")
    assert "cpu" in rlx.available_devices()
    assert "strange" in [device_row.label for device_row in rlx.device_report()]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cuda", "the name is reserved by rlxweb"),
        ("dawn", "the name is reserved by rlxweb"),
        ("nvidia", "the name is reserved by rlxweb"),
        ("auto", "the name is reserved by rlxweb"),
        ("Strange", "the name may contain only lower-case letters"),
        ("a:b", "the name may contain only lower-case letters"),
    ],
)
def test_reserved_or_invalid_name_is_refused(
    install: InstallPackage, call: CommandRunner, name: str, words: str
) -> None:
    """Our device stays as it was, and `rlxweb devices` names the refused package."""
    before = engine_labels()
    install("strange", f"{name} = strange_engine:row", strange_engine="1 / 0")
    assert engine_labels() == before
    (reason,) = refused_entry_points()
    assert f"'{name}' of strange 1.0: {words}" in reason
    result = call("devices", "cpu")
    assert f"entry point rejected: {reason}"[:60] in " ".join(result.out.split())
    assert call("devices", "cpu", "--json").document["refused_entry_points"] == [reason]
    assert "strange_engine" not in sys.modules


def test_first_of_two_packages_with_one_name_wins(install: InstallPackage) -> None:
    install("second", "strange = late:row", late="1 / 0")
    install("first", "strange = strange_engine:row", strange_engine=WORKING_ENGINE)
    assert absence_reason("strange") == ""
    (reason,) = refused_entry_points()
    assert reason == "'strange' of second 1.0: first 1.0 already uses this name"


def test_damaged_metadata_is_reported_and_skipped(install: InstallPackage) -> None:
    install("strange", "no equals sign here")
    install("good", "good = strange_engine:row", strange_engine=WORKING_ENGINE)
    assert "good" in engine_labels()
    (reason,) = refused_entry_points()
    assert reason.startswith("a package has invalid entry points")


def test_uninstalled_package_removes_its_device(
    install: InstallPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("strange", "strange = strange_engine:row", strange_engine=WORKING_ENGINE)
    assert parse_device("strange").label == "strange"
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "strange" not in p])
    with pytest.raises(UnknownDevice, match="unknown device 'strange'"):
        parse_device("strange")


def test_standard_library_zip_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standard library's zip, as in a browser, is slow to read and skipped; another
    zip is searched.
    """
    stdlib_zip = "python{}{}.zip".format(*sys.version_info)
    for name, label in ((stdlib_zip, "inside"), ("other.zip", "outside")):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            dist_info = f"{label}-1.0.dist-info"
            metadata = f"Metadata-Version: 2.1\nName: {label}\nVersion: 1.0\n"
            archive.writestr(f"{dist_info}/METADATA", metadata)
            entry_points = f"[rlxweb.backends]\n{label} = engine:row\n"
            archive.writestr(f"{dist_info}/entry_points.txt", entry_points)
        monkeypatch.syspath_prepend(tmp_path / name)
    assert "outside" in engine_labels()
    assert "inside" not in engine_labels()


def test_shadowed_package_adds_no_device(
    install: InstallPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shadowed package adds nothing: Python imports the first of a name on the
    path.
    """
    install("twice", "hidden = engine:row")
    shadowing = tmp_path / "above" / "Twice-2.0.dist-info"
    shadowing.mkdir(parents=True)
    (shadowing / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: Twice\nVersion: 2\n"
    )
    assert "hidden" in engine_labels()
    monkeypatch.syspath_prepend(shadowing.parent)
    assert "hidden" not in engine_labels()
