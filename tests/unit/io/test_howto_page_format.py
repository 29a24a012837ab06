"""The manual's page about adding a format: a reader and a row make one."""

from __future__ import annotations

from pathlib import Path

from tests.howto_pages import apply_diff, code_blocks, copy_package, run_copy

PROGRAM = """
import numpy as np
import rlxweb as rlx
from rlxweb.cli.main import main
from rlxweb.errors import RecordingError

rng = np.random.default_rng(2)
x = rng.integers(-900, 900, (2, 1_200_000)).astype("<i2")  # more than a part
with open("night.raw16", "wb") as file:
    file.write(b"RAW16 fs=250 channels=Fz,Cz\\n" + x.T.tobytes() + b"\\0")
import warnings

warnings.simplefilter("ignore")
with rlx.io.open_recording("night.raw16", channels=["Cz"]) as recording:
    assert "last 1 bytes" in recording.warnings[0], recording.warnings
    (group,) = recording.groups
    assert (recording.format, group.fs, group.n_samples) == ("RAW16", 250.0, 1_200_000)
    assert [channel.name for channel in group.channels] == ["Cz"]
    np.testing.assert_array_equal(group.read(100), x[1:, 100:])
with open("bad.raw16", "wb") as file:
    file.write(b"RAW16 fs=250 names=Fz\\n")
try:
    rlx.io.open_recording("bad.raw16")
except RecordingError as error:
    print(error)
try:
    main(["info", "night.raw16"])
except SystemExit as end:
    assert not end.code
"""


def test_a_reader_and_a_row_make_a_format(tmp_path: Path) -> None:
    """The page's code, in a copy of the package, reads, refuses and describes files."""
    copy_package(tmp_path)
    reader, _ = code_blocks("add-a-format", "python")
    (diff,) = code_blocks("add-a-format", "diff")
    (tmp_path / "rlxweb" / "io" / "raw16_reader.py").write_text(reader, "utf-8")
    apply_diff(tmp_path, diff)
    refusal, *description = run_copy(tmp_path, PROGRAM)
    assert "'bad.raw16': the first line cannot be read; expected 'RAW16 fs=" in refusal
    assert any("RAW16" in line for line in description)
