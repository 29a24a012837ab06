"""The packages as one file: what is in it, and what is refused."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import zipfile
from pathlib import Path

import pytest
from assembly.errors import SiteError
from assembly.image import MODULE, add_image, filled, image

pytestmark = pytest.mark.filterwarnings("error")


def archive(path: Path, **files: bytes) -> Path:
    """A zip of these files; `__` in a name stands for a slash."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written:
        for name, data in files.items():
            head, _, ending = name.rpartition("_")
            written.writestr(f"{head.replace('__', '/')}.{ending}", data)
    return path


def laid_out(packed: bytes) -> dict[str, bytes]:
    """What a page makes of an image."""
    index, _, rest = gzip.decompress(packed).partition(b"\n")
    files, at = {}, 0
    for name, size in json.loads(index).items():
        files[name] = rest[at : at + size]
        at += size
    assert at == len(rest)
    return files


def test_an_image_holds_what_python_reads(tmp_path: Path) -> None:
    """Modules, data and binaries of all archives; no headers, no stubs."""
    first = archive(tmp_path / "a.whl", a__one_py=b"1\n", a__one_pyi=b"", a__x_so=b"\0")
    second = archive(tmp_path / "b.zip", a__two_py=b"", b__c_h=b"", b__shade_wgsl=b"//")
    assert laid_out(image([first, second])) == {
        "a/one.py": b"1\n",
        "a/x.so": b"\0",
        "a/two.py": b"",
        "b/shade.wgsl": b"//",
    }


def test_the_same_archives_make_the_same_image(tmp_path: Path) -> None:
    """An image is named by its hash: the same one stays in the browser's cache."""
    given = [archive(tmp_path / "a.whl", a__one_py=b"1\n")]
    assert image(given) == image(given)


def test_two_files_of_one_name_are_refused_unless_they_are_the_same(
    tmp_path: Path,
) -> None:
    """One of them would be lost without a word."""
    given = [archive(tmp_path / f"{n}.whl", a__one_py=b"1\n") for n in "ab"]
    assert laid_out(image(given)) == {"a/one.py": b"1\n"}
    given.append(archive(tmp_path / "c.whl", a__one_py=b"2\n"))
    with pytest.raises(SiteError, match=r"two of them have a/one\.py"):
        image(given)


@pytest.mark.parametrize("name", ["../a.py", "/a.py", "numpy-2.data/scripts/f2py"])
def test_a_file_for_another_place_is_refused(tmp_path: Path, name: str) -> None:
    """Nothing outside of site-packages is written in a tab."""
    with zipfile.ZipFile(tmp_path / "odd.whl", "w") as written:
        written.writestr(name, b"")
    with pytest.raises(SiteError, match=r"outside of the site|another place"):
        image([tmp_path / "odd.whl"])


def test_the_module_names_the_image_and_its_hash(tmp_path: Path) -> None:
    """The browser compares the hash before a byte of it is used."""
    wheel = archive(tmp_path / "a.whl", a__one_py=b"1\n")
    lock = {"packages": {"a": {"name": "a", "version": "1.0", "file_name": wheel.name}}}
    add_image(lock, tmp_path)
    text = (tmp_path / MODULE).read_text("utf-8")
    found = re.search(r"^const PACKED = (.*);$", text, re.MULTILINE)
    assert found is not None
    said = json.loads(found[1])
    digest = hashlib.sha256((tmp_path / said["image"]).read_bytes()).digest()
    assert said["integrity"] == f"sha256-{base64.b64encode(digest).decode()}"
    assert said["packages"] == {"a": "1.0"}


def test_a_module_that_cannot_be_filled_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page would start without packages."""
    (tmp_path / MODULE).write_text("const OTHER = {};", "utf-8")
    monkeypatch.setattr("assembly.image.TEMPLATE", tmp_path / MODULE)
    with pytest.raises(SiteError, match="it has not one line"):
        filled({})
