"""Plot files: formats chosen by suffix, and HTML pages that need no drawing library."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from rlxweb.cli.welch_plot import PLOT_SUFFIXES, check_plot
from rlxweb.core.errors import UsageError
from tests.cli_runners import run_cli, run_forked
from tests.unit.cli.test_welch_plot import analyse_rows, draw, noise

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


def page_data(html: str) -> dict[str, object]:
    """Return the plot data of an HTML page, which has no other data."""
    html = re.sub("<style>.*?</style>", "", html, flags=re.DOTALL)
    assert html.count("<script") == html.count("</script>") == 2
    assert "default-src 'none'" in html
    assert not re.search(r"""(src|href)=["'](?!#)""", html.split("<script")[0])
    match = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', html)
    assert match
    data: dict[str, object] = json.loads(match[1])
    return data


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (("welch", "--preset", "scipy", "--mode", "peaks"), "spectra"),
        (("bands",), "bands"),
        (("spectrogram",), "surface"),
    ],
)
def test_html_plot_needs_no_drawing_library(
    npz: Path, tmp_path: Path, command: tuple[str, ...], kind: str
) -> None:
    """Names are complete, flat channels are marked, and a page of ten channels is
    small.
    """
    blocked = tmp_path / "blocked" / "matplotlib"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ImportError")
    page = tmp_path / "p.html"
    name, *options = command
    code = (
        f"import sys; sys.path.insert(0, {str(blocked.parent)!r})\n"
        "from rlxweb.cli.main import main; main(sys.argv[1:])"
    )
    result = run_forked(
        "-c", code, name, npz, "--array", "x", *options, "-q", "--plot", page
    )
    assert (result.code, result.err) == (0, f"picture: {page}\n")
    html = page.read_text("utf-8")
    assert len(html) < 500_000
    (panel,) = page_data(html)["panels"]  # type: ignore[misc]
    assert panel["kind"] == kind
    assert [row["name"] for row in panel["rows"]] == NAMES
    if kind != "surface":
        assert [row["state"] for row in panel["rows"]] == [""] * 10 + ["flat"]


@pytest.mark.parametrize(
    ("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("PDF", b"%PDF")]
)
def test_suffix_selects_the_format(tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"p.{suffix}"
    draw(path, analyse_rows(tmp_path, noise(2)))
    assert path.read_bytes().startswith(magic)


def test_only_spectra_can_be_html(tmp_path: Path) -> None:
    """Pictures of a profile or a benchmark cannot be HTML."""
    check_plot(str(tmp_path / "p.html"), PLOT_SUFFIXES)
    with pytest.raises(UsageError, match=r"'\.html'; supported: \.png, \.svg, \.pdf$"):
        check_plot(str(tmp_path / "p.html"))


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'\.jpeg'.*\.png, \.svg, \.pdf"):
        check_plot(str(tmp_path / "p.jpeg"))


def test_matplotlib_folder_warnings_are_hidden(
    tmp_path: Path,
) -> None:
    """Matplotlib's log about its font folder does not reach stderr."""
    np.save(tmp_path / "x.npy", noise(2))
    (tmp_path / "file").touch()
    args = "welch", tmp_path / "x.npy", "--fs", 9, "-q", "--plot", tmp_path / "x.png"
    result = run_cli(*args, MPLCONFIGDIR=str(tmp_path / "file" / "no folder"))
    assert (result.code, result.err) == (0, f"picture: {tmp_path / 'x.png'}\n")
