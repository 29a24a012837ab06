"""`rlxweb live`: a signal that runs, told in lines, in JSON, and on a terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.command_line import Call, Said, check_refused, spawn
from tests.recordings import written
from tests.terminal import Terminal

FS = 128
T = np.arange(20 * FS) / FS
X = np.random.default_rng(4).standard_normal((2, T.size)) + 3 * np.sin(20 * np.pi * T)
RAW = ("--raw", "f32", "--channels", "2", "--fs", str(FS))


def piped(*more: str, data: bytes | None = None) -> Said:
    given = X.T.astype("<f4").tobytes() if data is None else data
    return spawn("live", "-", *RAW, *more, stdin=given)


def test_a_pipe_is_told_line_by_line() -> None:
    done = piped("--json-lines", "--average", "all", "--spectra")
    assert (done.code, done.err) == (0, "")
    told = [json.loads(one) for one in done.out.splitlines()]
    assert told[-1]["seconds"] == 20.0
    for channel in told[-1]["channels"]:
        assert channel["peaks"][0]["hz"] == pytest.approx(10.0, abs=0.05)
    lines = piped("--duration-s", "10").out.splitlines()
    assert lines[-1].startswith("10.0 s, peaks in Hz: ch1 10.0")


@pytest.mark.parametrize(("columns", "rows"), [(40, 12), (200, 40)])
def test_on_a_terminal_it_is_drawn_in_its_width(columns: int, rows: int) -> None:
    with Terminal("live", "-", *RAW, columns=columns, rows=rows) as terminal:
        terminal.give(X.T.astype("<f4").tobytes())
        terminal.end_input()
        assert terminal.code() == 0
        assert "stdin · 2 channels at 128 Hz" in terminal.said
        assert "█" in terminal.said
        assert "10.0" in terminal.said


def test_without_colours_bands_are_words() -> None:
    with Terminal("live", "-", *RAW, NO_COLOR="1") as terminal:
        terminal.give(X.T.astype("<f4").tobytes())
        terminal.end_input()
        assert terminal.code() == 0
        assert re.search(r"alpha \d\d %", terminal.said)
        assert "bands:" not in terminal.said


@pytest.mark.parametrize("more", [(), ("--web", "--no-open")])
def test_a_dumb_terminal_gets_lines(more: tuple[str, ...]) -> None:
    with Terminal("live", "-", *RAW, *more, TERM="dumb") as terminal:
        terminal.give(X.T.astype("<f4").tobytes())
        terminal.end_input()
        assert terminal.code() == 0
        assert "\x1b" not in terminal.said
        *first, last = terminal.said.splitlines()
        assert last.startswith("20.0 s, peaks in Hz: ch1 10.0")
        assert [one for one in first if one.startswith("http://127.0.0.1:")] == (
            first[:1] if more else []
        )


def test_a_page_goes_beside_json_lines() -> None:
    """The page's address goes to stderr; JSON lines keep their own pace."""
    done = piped("--json-lines", "--web", "--no-open", "--every-s", "30")
    assert done.code == 0
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{24}/\s*", done.err)
    assert json.loads(done.out.splitlines()[-1])["seconds"] == 20.0


def test_a_file_is_replayed(tmp_path: Path, call: Call) -> None:
    path = written(tmp_path / "a.edf", ("Cz", 64.0), ("ECG", 128.0))
    said = call("live", path, "--replay", "1000", "-c", "Cz", "--json-lines")
    assert said.code == 0
    assert "gamma (30–45 Hz)" in said.err
    assert said.err.count("left out: half the rate is 32 Hz") == 1
    assert json.loads(said.out.splitlines()[-1])["seconds"] == 4.0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("-",), ("a pipe says nothing of itself", "--raw f32 --channels 8 --fs 256")),
        (("lsl", "--fs", "9"), ("--fs", "does not go with 'lsl'")),
        (("mic", "--replay", "1"), ("--replay", "does not go with 'mic'")),
        (("a.edf", "--spectra"), ("--spectra", "--json-lines")),
        (("a.edf", "--port", "8765"), ("--port", "it goes with --web")),
        (("a.edf", "--no-open"), ("--no-open", "it goes with --web")),
        (("nowhere.edf",), ("nowhere.edf",)),
    ],
)
def test_what_does_not_go_together_is_refused(
    call: Call, args: tuple[str, ...], words: tuple[str, ...]
) -> None:
    said = call("live", *args)
    check_refused(said, said.code, *words)
    assert said.code in (1, 2)


def test_a_channel_to_show_must_be_there(tmp_path: Path, call: Call) -> None:
    path = written(tmp_path / "a.edf", ("Cz", 64.0))
    said = call("live", path, "--replay", "1000", "--fmin", "40")
    check_refused(said, 2, "40")


def test_a_pipe_cut_inside_a_frame_is_told() -> None:
    done = piped("--json-lines", data=b"abcde")
    assert done.code == 2
    assert "5 bytes of a frame" in done.err
    assert done.out == ""
