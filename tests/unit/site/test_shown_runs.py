"""Runs that pages show and that no test can repeat to the letter: what of them can be.

Times are those of one machine once; words, rows, sums and shares are today's.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from picture_text import alike

import rlxweb as rlx
from tests.command_line import Call
from tests.unit.site.manual import PAGES, ROOT

UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def shown(path: Path, begin: str) -> list[str]:
    """The lines of the block of text that begins so."""
    found = re.findall(r"^```text\n(.*?)^```$", path.read_text("utf-8"), re.M | re.S)
    (block,) = (one for one in found if one.startswith(begin))
    return block.splitlines()


def test_errors_of_the_front_page_are_those_of_today(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors on the front page are the command line's, as far as the page goes."""
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).standard_normal((3, 1000))
    np.save("x.npy", x)
    long = call("welch", "x.npy", "--fs", 100, "--nperseg", 1001)
    device = call("welch", "x.npy", "--fs", 100, "--device", "vulcan")
    x[1, 777] = np.nan
    np.save("x.npy", x)
    nan = call("welch", "x.npy", "--fs", 100)
    lines = shown(ROOT / "README.md", "rlxweb: reading")
    for line, said in zip(lines, (nan, long, device), strict=True):
        assert said.code == 2
        assert alike(said.err, line), said.err


def nanoseconds(text: str) -> float:
    """Such as "3.10 us"."""
    number, unit = text.split()
    return float(number) * UNITS[unit]


def test_the_profile_on_its_page_is_one_of_today() -> None:
    """The page's profile has today's heads and rows; its shares and sums add up."""
    title, how, roof, heads, *rows, last = shown(PAGES / "howto/profile.md", "block on")
    g = rlx.Graph("block")
    x = g.input("x", (128, 256))
    w = g.constant(np.full((256, 256), 0.01, np.float32))
    g.set_outputs([g.softmax(g.gelu(x @ w) @ w)])
    compiled = rlx.Session("cpu").compile(g)
    found = compiled.profile({"x": np.ones((128, 256), np.float32)}, repeats=1)
    _, now_how, now_roof, now_heads, *now_rows, now_last = str(found).splitlines()
    assert now_how == how
    assert now_heads.split() == heads.split()
    assert now_roof.split(":")[0] == roof.split(":")[0]
    assert now_last.split(":")[0] == last.split(":")[0]
    steps, times, shares = zip(
        *(re.match(r"(.+?) {2,}([\d.]+ \w+) +(\d+)%", row).groups() for row in rows),
        strict=True,
    )
    assert steps == tuple(re.split(" {2,}", row)[0] for row in now_rows)
    every = [nanoseconds(time) for time in times]
    total = re.search(r": ([\d.]+ \w+),", title)
    assert total is not None
    assert sum(every) == pytest.approx(nanoseconds(total[1]), rel=0.01)
    for time, share in zip(every, shares, strict=True):
        assert float(share) == pytest.approx(100 * time / sum(every), abs=0.6)
