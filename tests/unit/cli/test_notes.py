"""`rlxweb notes`, on a song whose notes are known."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from rlxweb.io import write_recording
from tests.command_line import Call, check_refused
from tests.unit.models.made_sound import song

CPU = ("--device", "cpu")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A song of one window, in the folder one is in."""
    monkeypatch.chdir(tmp_path)
    write_recording("song.wav", song(1.3, 16000)[0][None], fs=16000)
    return "song.wav"


def test_notes_are_shown_and_written_in_every_form(call: Call, path: str) -> None:
    forms = ("midi", "csv", "npz", "json", "plot")
    suffix = {"midi": "mid", "plot": "png"}
    files = [(f"--{form}", f"out.{suffix.get(form, form)}") for form in forms]
    args = [arg for pair in files for arg in pair]
    said = call("notes", path, *args, "--device", "cpu")
    assert said.code == 0, said.err
    record = json.loads(Path("out.json").read_text())
    assert record["schema"] == "rlxweb.notes/1"
    notes = record["notes"]
    assert notes
    assert all(one["name"] in said.out for one in notes)
    assert f"{len(notes)} notes in 1.3 s" in said.out
    with open("out.csv", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    with np.load("out.npz") as arrays:
        for name, own in (("start", "start_s"), ("pitch", "pitch_midi")):
            want = [one[name] for one in notes]
            assert [float(line[own]) for line in lines] == want
            assert arrays[name].tolist() == want
        assert arrays["bend_count"].sum() == len(arrays["bends"])
    assert Path("out.mid").read_bytes()[:4] == b"MThd"
    assert Path("out.png").read_bytes()[1:4] == b"PNG"


def test_a_page_of_notes_holds_them_all(call: Call, path: str) -> None:
    more = "--onset-threshold", "0.9", "--frame-threshold", "0.9"
    said = call(
        "notes", path, *more, "--plot", "p.html", "--dark", "--csv", "-", "-q", *CPU
    )
    assert said.code == 0
    assert len(said.out.splitlines()) == 1, "no note is so sure"
    page = Path("p.html").read_text("utf-8")
    assert '"kind":"roll"' in page
    assert 'data-theme="dark"' in page
    assert '"count":0' in page


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("none.wav",), "no such file"),
        (("song.wav", "--model", "song.wav"), "song.wav"),
        (("song.wav", "--csv", "song.wav"), "the sound file 'song.wav'"),
        (("song.wav", "--plot", "a.gif"), "known: .png"),
        (("song.wav", "--onset-threshold", "0"), "--onset-threshold"),
    ],
)
def test_what_cannot_be_done_is_told(
    call: Call, path: str, args: tuple[str, ...], words: str
) -> None:
    check_refused(call("notes", *args), 2, words)
