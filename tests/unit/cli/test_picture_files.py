"""Files of pictures: what their names ask for, and pages that need no library."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from rlxweb.cli.plot import PAGES, check_plot
from rlxweb.errors import UsageError
from tests.command_line import forked, spawn
from tests.unit.cli.test_plot import draw, noise, result_of

FS = 200.0
NAMES = [
    "</script><b>",
    "Cz",
    "脳波",
    "Fp1",
    "Fp2",
    "F3",
    "F4",
    "C3",
    "C4",
    "P3",
    "flat",
]


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    """Eleven channels, one of them flat."""
    x = noise(11, 3000)
    x[:, :] += np.sin(2 * np.pi * 10.1 * np.arange(3000) / FS)
    x[10] = 0
    np.savez(tmp_path / "x.npz", x=x, fs=FS, channels=np.array(NAMES))
    return tmp_path / "x.npz"


def document_of(html: str) -> dict[str, object]:
    """What the page draws; its only data."""
    html = re.sub("<style>.*?</style>", "", html, flags=re.DOTALL)
    assert html.count("<script") == html.count("</script>") == 2
    assert "default-src 'none'" in html
    assert not re.search(r"""(src|href)=["'](?!#)""", html.split("<script")[0])
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', html)
    assert found
    made: dict[str, object] = json.loads(found[1])
    return made


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (("welch", "--preset", "scipy", "--mode", "peaks"), "spectra"),
        (("bands",), "bands"),
        (("spectrogram",), "surface"),
    ],
)
def test_a_page_is_made_without_a_drawing_library(
    npz: Path, tmp_path: Path, command: tuple[str, ...], kind: str
) -> None:
    """Whole names, and what is silent is told; a page of ten channels is small."""
    blocked = tmp_path / "blocked" / "matplotlib"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ImportError")
    page = tmp_path / "p.html"
    name, *more = command
    code = (
        f"import sys; sys.path.insert(0, {str(blocked.parent)!r})\n"
        "from rlxweb.cli.main import main; main(sys.argv[1:])"
    )
    said = forked("-c", code, name, npz, "--array", "x", *more, "-q", "--plot", page)
    assert (said.code, said.err) == (0, f"picture: {page}\n")
    html = page.read_text("utf-8")
    assert len(html) < 500_000
    (panel,) = document_of(html)["panels"]  # type: ignore[misc]
    assert panel["kind"] == kind
    assert [row["name"] for row in panel["rows"]] == NAMES
    if kind != "surface":
        assert [row["state"] for row in panel["rows"]] == [""] * 10 + ["flat"]


@pytest.mark.parametrize(
    ("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("PDF", b"%PDF")]
)
def test_the_suffix_is_the_format(tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"p.{suffix}"
    draw(path, result_of(tmp_path, noise(2)))
    assert path.read_bytes().startswith(magic)


def test_only_spectra_have_pages(tmp_path: Path) -> None:
    """A profile's picture, and a bench's, is none that one looks around in."""
    check_plot(str(tmp_path / "p.html"), PAGES)
    with pytest.raises(UsageError, match=r"'\.html'; known: \.png, \.svg, \.pdf$"):
        check_plot(str(tmp_path / "p.html"))


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'\.jpeg'.*\.png, \.svg, \.pdf"):
        check_plot(str(tmp_path / "p.jpeg"))


def test_a_library_without_its_folder_is_not_our_users_business(
    tmp_path: Path,
) -> None:
    """Matplotlib logs where it keeps its fonts; our lines on stderr are our own."""
    np.save(tmp_path / "x.npy", noise(2))
    (tmp_path / "file").touch()
    args = "welch", tmp_path / "x.npy", "--fs", 9, "-q", "--plot", tmp_path / "x.png"
    said = spawn(*args, MPLCONFIGDIR=str(tmp_path / "file" / "no folder"))
    assert (said.code, said.err) == (0, f"picture: {tmp_path / 'x.png'}\n")
