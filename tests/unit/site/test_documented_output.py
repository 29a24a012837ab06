"""Output on pages that no test can reproduce exactly: the parts that can be compared.

Times are those of one machine once; words, rows, sums and shares are today's.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from output_comparison import outputs_match

import rlxweb as rlx
from tests.cli_runners import CommandRunner
from tests.unit.site.built_manual import PAGES, ROOT

UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def text_block(path: Path, first_words: str) -> list[str]:
    """Return the lines of the text block that begins with these words."""
    texts = re.findall(r"^```text\n(.*?)^```$", path.read_text("utf-8"), re.M | re.S)
    (block,) = (text for text in texts if text.startswith(first_words))
    return block.splitlines()


def test_errors_on_the_front_page_are_current(
    call: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors on the front page are the command line's, as far as the page shows
    them.
    """
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).standard_normal((3, 1000))
    np.save("x.npy", x)
    long = call("welch", "x.npy", "--fs", 100, "--nperseg", 1001)
    device = call("welch", "x.npy", "--fs", 100, "--device", "vulcan")
    x[1, 777] = np.nan
    np.save("x.npy", x)
    nan = call("welch", "x.npy", "--fs", 100)
    lines = text_block(ROOT / "README.md", "rlxweb: reading")
    for line, result in zip(lines, (nan, long, device), strict=True):
        assert result.code == 2
        assert outputs_match(result.err, line), result.err


def parse_nanoseconds(text: str) -> float:
    """Return the nanoseconds of a time such as "3.10 us"."""
    number, unit = text.split()
    return float(number) * UNITS[unit]


def test_the_documented_profile_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's profile has the current header and rows, as without compiled kernels;
    its shares and sums add up.
    """
    monkeypatch.setenv("RLX_FAST", "off")
    title, settings_line, roofline, header, *rows, last = text_block(
        PAGES / "howto/profile.md", "block on"
    )
    g = rlx.Graph("block")
    x = g.input("x", (128, 256))
    w = g.constant(np.full((256, 256), 0.01, np.float32))
    g.set_outputs([g.softmax(g.gelu(x @ w) @ w)])
    compiled = rlx.Session("cpu").compile(g)
    profile = compiled.profile({"x": np.ones((128, 256), np.float32)}, repeats=1)
    _, now_settings_line, now_roofline, now_header, *now_rows, now_last = str(
        profile
    ).splitlines()
    assert now_settings_line == settings_line
    assert now_header.split() == header.split()
    assert now_roofline.split(":")[0] == roofline.split(":")[0]
    assert now_last.split(":")[0] == last.split(":")[0]
    steps, times, shares = zip(
        *(re.match(r"(.+?) {2,}([\d.]+ \w+) +(\d+)%", row).groups() for row in rows),
        strict=True,
    )
    assert steps == tuple(re.split(" {2,}", row)[0] for row in now_rows)
    times_ns = [parse_nanoseconds(time) for time in times]
    total = re.search(r": ([\d.]+ \w+),", title)
    assert total is not None
    assert sum(times_ns) == pytest.approx(parse_nanoseconds(total[1]), rel=0.01)
    for time, share in zip(times_ns, shares, strict=True):
        assert float(share) == pytest.approx(100 * time / sum(times_ns), abs=0.6)
