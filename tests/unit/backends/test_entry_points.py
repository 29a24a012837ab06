"""Engines that other packages add: found by name, loaded late, harmless when broken."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.pool import pool
from rlxweb.backends.registry import blocker, labels, refused_entry_points
from rlxweb.device import parse_device
from rlxweb.devices.policy import DevicePolicy
from rlxweb.errors import AdapterMissing, UnknownDevice
from tests.command_line import Call

Install = Callable[..., None]
GOOD = """
from rlxweb.backends.registry import Row
from tests.made_engine import Shop
shop = Shop()
row = shop.row(named_only=False)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package with entry points on the path, as pip would."""

    def put(package: str, points: str, **modules: str) -> None:
        folder = tmp_path / package
        info = folder / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        about = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        (info / "METADATA").write_text(about)
        (info / "entry_points.txt").write_text(f"[rlxweb.backends]\n{points}\n")
        for name, text in modules.items():
            (folder / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(folder)

    known = set(sys.modules)
    yield put
    pool.close_all()
    for name in set(sys.modules) - known:
        home = getattr(sys.modules[name], "__file__", None) or ""
        if home.startswith(str(tmp_path)):
            del sys.modules[name]


def test_an_engine_of_a_package_is_a_device_like_ours(install: Install) -> None:
    """Nobody imports the package before one asks for its device, or for all."""
    install("strange", "strange = strange_engine:row", strange_engine=GOOD)
    assert "strange" in labels()
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
        ("print('garbage')\nrow = 5", "its entry point is 5; a rlxweb.*Row is wanted"),
        ("other = 1", "AttributeError"),
        (
            "from rlxweb.backends.registry import Row\n"
            "async def open_it(adapter): raise OSError('libx.so: bad ABI')\n"
            "row = Row(open_it)",
            r"OSError: libx\.so: bad ABI",
        ),
        (
            "from rlxweb.backends.registry import Row\n"
            "from tests.made_engine import MadeEngine\n"
            "async def open_it(adapter): return MadeEngine(off=1.0)\n"
            "row = Row(open_it)",
            "Made 1.0 computes wrong",
        ),
        (
            "from rlxweb.backends.registry import Row\n"
            "row = Row(None, present=lambda: 1 / 0)",
            "ZeroDivisionError",
        ),
    ],
)
def test_a_broken_package_is_a_row_that_says_so(
    install: Install, call: Call, text: str, words: str
) -> None:
    """A broken package shows in the report and to whoever asks for it alone."""
    install("strange", "strange = strange_engine:row", strange_engine=text)
    said = call("devices", "strange", "--json")
    assert said.code == 0, said.err
    (row,) = said.record["devices"]
    assert not row["available"]
    with pytest.raises(AdapterMissing, match=words):
        rlx.Session("strange")
    assert "cpu" in rlx.available_devices()
    assert "strange" in [r.label for r in rlx.device_report()]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cuda", "the name is rlxweb's own"),
        ("dawn", "the name is rlxweb's own"),
        ("nvidia", "the name is rlxweb's own"),
        ("auto", "the name is rlxweb's own"),
        ("Strange", "a label is lower-case letters"),
        ("a:b", "a label is lower-case letters"),
    ],
)
def test_a_name_that_is_not_free_is_refused(
    install: Install, call: Call, name: str, words: str
) -> None:
    """Ours stays what it was, and `rlxweb devices` says whose was refused."""
    before = labels()
    install("strange", f"{name} = strange_engine:row", strange_engine="1 / 0")
    assert labels() == before
    (why,) = refused_entry_points()
    assert f"'{name}' of strange 1.0: {words}" in why
    said = call("devices", "cpu")
    assert f"entry point refused: {why}"[:60] in " ".join(said.out.split())
    assert call("devices", "cpu", "--json").record["refused_entry_points"] == [why]
    assert "strange_engine" not in sys.modules


def test_of_two_packages_with_one_name_the_first_is_taken(install: Install) -> None:
    install("second", "strange = late:row", late="1 / 0")
    install("first", "strange = strange_engine:row", strange_engine=GOOD)
    assert blocker("strange") == ""
    (why,) = refused_entry_points()
    assert why == "'strange' of second 1.0: first 1.0 has that name already"


def test_damaged_metadata_is_told_and_passed_over(install: Install) -> None:
    install("strange", "no equals sign here")
    install("good", "good = strange_engine:row", strange_engine=GOOD)
    assert "good" in labels()
    (why,) = refused_entry_points()
    assert why.startswith("damaged entry points")


def test_a_package_that_is_gone_takes_its_device_along(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("strange", "strange = strange_engine:row", strange_engine=GOOD)
    assert parse_device("strange").label == "strange"
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "strange" not in p])
    with pytest.raises(UnknownDevice, match="unknown device 'strange'"):
        parse_device("strange")


def test_the_zip_of_python_itself_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tab has one, and reading it would take long; another zip is."""
    python = "python{}{}.zip".format(*sys.version_info)
    for name, label in ((python, "inside"), ("other.zip", "outside")):
        with zipfile.ZipFile(tmp_path / name, "w") as packed:
            info = f"{label}-1.0.dist-info"
            about = f"Metadata-Version: 2.1\nName: {label}\nVersion: 1.0\n"
            packed.writestr(f"{info}/METADATA", about)
            points = f"[rlxweb.backends]\n{label} = engine:row\n"
            packed.writestr(f"{info}/entry_points.txt", points)
        monkeypatch.syspath_prepend(tmp_path / name)
    assert "outside" in labels()
    assert "inside" not in labels()


def test_a_package_that_another_of_its_name_hides_adds_nothing(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hidden package adds nothing: Python imports the first of a name on the path."""
    install("twice", "hidden = engine:row")
    above = tmp_path / "above" / "Twice-2.0.dist-info"
    above.mkdir(parents=True)
    (above / "METADATA").write_text("Metadata-Version: 2.1\nName: Twice\nVersion: 2\n")
    assert "hidden" in labels()
    monkeypatch.syspath_prepend(above.parent)
    assert "hidden" not in labels()
