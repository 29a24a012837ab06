"""The packages as one image file: its contents, and the archives that are refused."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import zipfile
from pathlib import Path

import pytest
from assembly.combined_package_archive import (
    LOADER_MODULE,
    add_image,
    build_image,
    loader_text,
)
from assembly.errors import SiteError

pytestmark = pytest.mark.filterwarnings("error")


def write_zip(path: Path, **files: bytes) -> Path:
    """Write a ZIP archive of these files; `__` in a name stands for a slash."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for name, data in files.items():
            path_part, _, extension = name.rpartition("_")
            zip_file.writestr(f"{path_part.replace('__', '/')}.{extension}", data)
    return path


def unpack_image(packed: bytes) -> dict[str, bytes]:
    """Return the files of an image by name, as a page unpacks it."""
    index, _, rest = gzip.decompress(packed).partition(b"\n")
    files, offset = {}, 0
    for name, size in json.loads(index).items():
        files[name] = rest[offset : offset + size]
        offset += size
    assert offset == len(rest)
    return files


def test_an_image_has_the_files_that_python_reads(tmp_path: Path) -> None:
    """An image has modules, data and binaries of all archives, but no headers or
    stubs.
    """
    first = write_zip(
        tmp_path / "a.whl", a__one_py=b"1\n", a__one_pyi=b"", a__x_so=b"\0"
    )
    second = write_zip(
        tmp_path / "b.zip", a__two_py=b"", b__c_h=b"", b__shade_wgsl=b"//"
    )
    assert unpack_image(build_image([first, second])) == {
        "a/one.py": b"1\n",
        "a/x.so": b"\0",
        "a/two.py": b"",
        "b/shade.wgsl": b"//",
    }


def test_the_same_archives_make_the_same_image(tmp_path: Path) -> None:
    """The image is reproducible: its name is its hash, so it stays in the browser's
    cache.
    """
    archives = [write_zip(tmp_path / "a.whl", a__one_py=b"1\n")]
    assert build_image(archives) == build_image(archives)


def test_two_files_of_one_name_are_refused_unless_they_are_the_same(
    tmp_path: Path,
) -> None:
    """Different files of one name are refused, since one would be lost silently."""
    archives = [write_zip(tmp_path / f"{n}.whl", a__one_py=b"1\n") for n in "ab"]
    assert unpack_image(build_image(archives)) == {"a/one.py": b"1\n"}
    archives.append(write_zip(tmp_path / "c.whl", a__one_py=b"2\n"))
    with pytest.raises(
        SiteError,
        match=r"two packages contain different versions of the file a/one\.py",
    ):
        build_image(archives)


@pytest.mark.parametrize("name", ["../a.py", "/a.py", "numpy-2.data/scripts/f2py"])
def test_a_file_outside_site_packages_is_refused(tmp_path: Path, name: str) -> None:
    """Nothing outside of site-packages is written in a tab."""
    with zipfile.ZipFile(tmp_path / "odd.whl", "w") as zip_file:
        zip_file.writestr(name, b"")
    with pytest.raises(
        SiteError, match=r"outside the package folder|not installed in site-packages"
    ):
        build_image([tmp_path / "odd.whl"])


def test_the_module_names_the_image_and_its_hash(tmp_path: Path) -> None:
    """The module has the image's name and the hash that the browser checks."""
    wheel = write_zip(tmp_path / "a.whl", a__one_py=b"1\n")
    lock = {"packages": {"a": {"name": "a", "version": "1.0", "file_name": wheel.name}}}
    add_image(lock, tmp_path)
    text = (tmp_path / LOADER_MODULE).read_text("utf-8")
    match = re.search(r"^const PACKED = (.*);$", text, re.MULTILINE)
    assert match is not None
    description = json.loads(match[1])
    digest = hashlib.sha256((tmp_path / description["image"]).read_bytes()).digest()
    assert description["integrity"] == f"sha256-{base64.b64encode(digest).decode()}"
    assert description["packages"] == {"a": "1.0"}


def test_a_module_that_cannot_be_filled_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module without its placeholder is refused, since a page would start without
    packages.
    """
    (tmp_path / LOADER_MODULE).write_text("const OTHER = {};", "utf-8")
    monkeypatch.setattr(
        "assembly.combined_package_archive.LOADER_TEMPLATE", tmp_path / LOADER_MODULE
    )
    with pytest.raises(SiteError, match="expected one line"):
        loader_text({})
