"""Reading and writing recordings: files as groups of channels, and back.

Owns files and nothing else: what a rate, a channel and a block of samples are. Knows no
graph, no device and no spectrum. `edfio` is loaded only to write the demo file.
"""

from rlxweb.core.atomic_file import atomic_path
from rlxweb.io.annotations import Annotation
from rlxweb.io.csv_json_npz import write_csv, write_json, write_npz
from rlxweb.io.demo import DemoTruth, Rhythm, write_demo_recording
from rlxweb.io.epochs import Epochs, epochs
from rlxweb.io.formats import SUFFIXES
from rlxweb.io.preprocessing import prepared
from rlxweb.io.recording import Block, Channel, Group, Recording, check_finite
from rlxweb.io.recording_reader import open_recording, read
from rlxweb.io.recording_writer import Written
from rlxweb.io.write_job import WrittenChannel, WrittenGroup

__all__ = [
    "SUFFIXES",
    "Annotation",
    "Block",
    "Channel",
    "DemoTruth",
    "Epochs",
    "Group",
    "Recording",
    "Rhythm",
    "Written",
    "WrittenChannel",
    "WrittenGroup",
    "atomic_path",
    "check_finite",
    "epochs",
    "open_recording",
    "prepared",
    "read",
    "write_csv",
    "write_demo_recording",
    "write_json",
    "write_npz",
]
