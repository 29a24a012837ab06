"""Notes of a sound, and what they are written as."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.arguments import number, switch
from rlxweb.errors import UsageError
from rlxweb.models.midi import midi_of
from rlxweb.models.note import Note
from rlxweb.whole_file import written_to

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Notes:
    """Notes of a sound, by when they begin; a sequence of them.

    seconds  of the sound
    name     of its file, or ""
    """

    notes: tuple[Note, ...]
    seconds: float
    name: str = ""

    def __len__(self) -> int:
        return len(self.notes)

    def __iter__(self) -> Iterator[Note]:
        return iter(self.notes)

    def __getitem__(self, at: int) -> Note:
        return self.notes[at]

    def __repr__(self) -> str:
        return f"Notes({len(self.notes):,} in {self.seconds:.1f} s)"

    def arrays(self) -> dict[str, Array]:
        """start, end (s), pitch, amplitude, each (n,); bends of all notes one after the
        other, and how many each has.
        """
        own = self.notes
        bends = [bend for one in own for bend in one.bends]
        return {
            "start": np.array([one.start for one in own], np.float64),
            "end": np.array([one.end for one in own], np.float64),
            "pitch": np.array([one.pitch for one in own], np.int64),
            "amplitude": np.array([one.amplitude for one in own], np.float64),
            "bends": np.array(bends, np.int8),
            "bend_count": np.array([len(one.bends) for one in own], np.int64),
        }

    def midi(
        self, tempo: float = 120.0, *, multiple_pitch_bends: bool = False
    ) -> bytes:
        """A MIDI file of them.

        tempo    quarter notes a minute that it is written in; no time hangs on it
        multiple_pitch_bends
                 notes that overlap are bent too, each on a channel of its own
        Errors   UsageError for a tempo outside 4 to 1000
        """
        own = number("tempo", tempo, "write MIDI")
        if not 4 <= own <= 1000:
            raise UsageError("write MIDI", f"tempo is {own:g}", "4 to 1000 a minute")
        apart = switch("multiple_pitch_bends", multiple_pitch_bends, "write MIDI")
        return midi_of(self.notes, own, apart)

    def write_midi(
        self,
        path: str | os.PathLike[str],
        tempo: float = 120.0,
        *,
        multiple_pitch_bends: bool = False,
    ) -> None:
        """`midi` as a file, whole or not at all. Errors  those of `midi`, and
        RecordingError where it cannot be written.
        """
        made = self.midi(tempo, multiple_pitch_bends=multiple_pitch_bends)
        with written_to(path, "write MIDI") as file:
            file.write(made)
