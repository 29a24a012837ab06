"""`rlxweb speech`, on what is enough of a voice."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from rlxweb.io import write_recording
from tests.command_line import Call, check_refused
from tests.unit.models.made_sound import voice


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A voice, in the folder one is in."""
    monkeypatch.chdir(tmp_path)
    write_recording("voice.wav", voice(2.0)[None], fs=16000)


def test_speech_is_shown_and_written_in_every_form(call: Call) -> None:
    outputs = [f"--{n}=out.{n}" for n in ("csv", "npz", "json")]
    more = "--min-speech", "100", "--plot", "out.svg", "--device", "cpu"
    said = call("speech", "voice.wav", *outputs, *more)
    assert said.code == 0, said.err
    record = json.loads(Path("out.json").read_text())
    assert record["schema"] == "rlxweb.speech/1"
    segments = [(one["start"], one["end"]) for one in record["segments"]]
    assert segments
    assert f"of 2.0 s is speech, in {len(segments)} segment" in said.out
    with open("out.csv", encoding="utf-8") as file:
        lines = [tuple(map(float, line)) for line in list(csv.reader(file))[1:]]
    assert lines == segments
    with np.load("out.npz") as arrays:
        assert arrays["start"].tolist() == [start for start, _ in segments]
        assert len(arrays["probability"]) == 63
    assert "<svg" in Path("out.svg").read_text("utf-8")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("none.wav",), "no such file"),
        (("voice.wav", "--model", "voice.wav"), "voice.wav"),
        (("voice.wav", "--plot", "a.html"), "known: .png, .svg, .pdf"),
        (("voice.wav", "--threshold", "1"), "--threshold"),
    ],
)
def test_what_cannot_be_done_is_told(
    call: Call, args: tuple[str, ...], words: str
) -> None:
    check_refused(call("speech", *args), 2, words)
