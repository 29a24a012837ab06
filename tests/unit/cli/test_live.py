"""`rlxweb live` on a running signal: output as lines, as JSON and on a terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.cli_runners import CommandResult, CommandRunner, run_cli
from tests.edf_bdf_recordings import write_recording
from tests.pseudo_terminal import Terminal

FS = 128
T = np.arange(20 * FS) / FS
X = np.random.default_rng(4).standard_normal((2, T.size)) + 3 * np.sin(20 * np.pi * T)
RAW = ("--raw", "f32", "--channels", "2", "--fs", str(FS))


def run_live_on_pipe(*options: str, data: bytes | None = None) -> CommandResult:
    """Run `rlxweb live -` on these bytes, or on the test signal."""
    stdin_bytes = X.T.astype("<f4").tobytes() if data is None else data
    return run_cli("live", "-", *RAW, *options, stdin=stdin_bytes)


def test_piped_samples_are_reported_line_by_line() -> None:
    result = run_live_on_pipe("--json-lines", "--average", "all", "--spectra")
    assert (result.code, result.err) == (0, "")
    documents = [json.loads(line) for line in result.out.splitlines()]
    assert documents[-1]["seconds"] == 20.0
    for channel in documents[-1]["channels"]:
        assert channel["peaks"][0]["hz"] == pytest.approx(10.0, abs=0.05)
    lines = run_live_on_pipe("--duration-s", "10").out.splitlines()
    assert lines[-1].startswith("10.0 s, peaks in Hz: ch1 10.0")


@pytest.mark.parametrize(("columns", "rows"), [(40, 12), (200, 40)])
def test_terminal_output_fits_its_width(columns: int, rows: int) -> None:
    with Terminal("live", "-", *RAW, columns=columns, rows=rows) as terminal:
        terminal.write_input(X.T.astype("<f4").tobytes())
        terminal.end_input()
        assert terminal.exit_code() == 0
        assert "stdin · 2 channels at 128 Hz" in terminal.output
        assert "█" in terminal.output
        assert "10.0" in terminal.output


def test_bands_are_text_without_colours() -> None:
    with Terminal("live", "-", *RAW, NO_COLOR="1") as terminal:
        terminal.write_input(X.T.astype("<f4").tobytes())
        terminal.end_input()
        assert terminal.exit_code() == 0
        assert re.search(r"alpha \d\d %", terminal.output)
        assert "bands:" not in terminal.output


@pytest.mark.parametrize("options", [(), ("--web", "--no-open")])
def test_a_dumb_terminal_gets_lines(options: tuple[str, ...]) -> None:
    with Terminal("live", "-", *RAW, *options, TERM="dumb") as terminal:
        terminal.write_input(X.T.astype("<f4").tobytes())
        terminal.end_input()
        assert terminal.exit_code() == 0
        assert "\x1b" not in terminal.output
        *first, last = terminal.output.splitlines()
        assert last.startswith("20.0 s, peaks in Hz: ch1 10.0")
        assert [line for line in first if line.startswith("http://127.0.0.1:")] == (
            first[:1] if options else []
        )


def test_web_page_and_json_lines_work_together() -> None:
    """The page's address goes to stderr; JSON lines keep their own pace."""
    result = run_live_on_pipe("--json-lines", "--web", "--no-open", "--every-s", "30")
    assert result.code == 0
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{24}/\s*", result.err)
    assert json.loads(result.out.splitlines()[-1])["seconds"] == 20.0


def test_a_file_is_replayed(tmp_path: Path, call: CommandRunner) -> None:
    path = write_recording(tmp_path / "a.edf", ("Cz", 64.0), ("ECG", 128.0))
    result = call("live", path, "--replay", "1000", "-c", "Cz", "--json-lines")
    assert result.code == 0
    assert "gamma (30–45 Hz)" in result.err
    assert result.err.count("skipped: half the sampling rate is 32 Hz") == 1
    assert json.loads(result.out.splitlines()[-1])["seconds"] == 4.0


def test_pipe_ending_inside_a_frame_is_reported() -> None:
    result = run_live_on_pipe("--json-lines", data=b"abcde")
    assert result.code == 2
    assert "5 bytes of an incomplete frame" in result.err
    assert result.out == ""
