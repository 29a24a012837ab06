"""`rlxweb iclabel`, on a head whose blinks and mains are known."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from rlxweb.io import write_recording
from tests.command_line import Call, check_refused
from tests.unit.models.made_head import NAMES, head


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An EEG, in the folder one is in."""
    monkeypatch.chdir(tmp_path)
    x = np.concatenate([1e6 * head(200.0, 20.0), np.ones((1, 4000))])
    names = [*NAMES, "Pulse"]
    write_recording("eeg.npz", x, fs=200.0, channels=names, units="uV")


def test_components_are_shown_and_written_in_every_form(call: Call) -> None:
    outputs = [f"--{n}=out.{n}" for n in ("csv", "npz", "json")]
    more = "--components", "5", "--plot", "out.png", "--device", "cpu"
    said = call("iclabel", "eeg.npz", *outputs, *more)
    assert said.code == 0, said.err
    assert "left out 1 channel: Pulse" in said.err
    record = json.loads(Path("out.json").read_text())
    assert record["schema"] == "rlxweb.iclabel/1"
    labels = [one["label"] for one in record["components"]]
    assert len(labels) == 5
    assert "eye blink" in labels
    assert all(label in said.out for label in labels)
    with open("out.csv", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["label"] for line in lines] == labels
    with np.load("out.npz") as arrays:
        chances = [list(one["probabilities"].values()) for one in record["components"]]
        np.testing.assert_allclose(arrays["probabilities"], chances, atol=1e-6)
        assert arrays["mixing"].shape == (20, 5)
        assert arrays["channels"].tolist() == list(NAMES)
    assert Path("out.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("none.edf",), "no such file"),
        (("eeg.npz", "--model", "eeg.npz"), "eeg.npz"),
        (("eeg.npz", "-c", "O*"), "3 of 3 channels"),
        (("eeg.npz", "--components", "40"), "the data have 19"),
    ],
)
def test_what_cannot_be_done_is_told(
    call: Call, args: tuple[str, ...], words: str
) -> None:
    check_refused(call("iclabel", *args), 2, words)
