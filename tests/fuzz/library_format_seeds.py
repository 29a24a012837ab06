"""Valid files of formats that other libraries read, and their companion files.

A file beside a recording is called `beside…` in every case, so that the header can name
it whatever the recording itself is called.
"""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import mne
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
import soundfile
import zarr
from onnx import TensorProto, helper, numpy_helper

from tests.unit.io.test_gdf import write_gdf
from tests.unit.signal.learned.red_noise import learned_result

FS = 64.0
N_SAMPLES = 320
LibraryFileWriter = Callable[[Path], None]
CHANNEL_NAMES = ("Fz", "Cz", "Oz")
mne.set_log_level("ERROR")


def _noise(rows: int = 3) -> npt.NDArray[np.float64]:
    return np.random.default_rng(1).uniform(-0.9, 0.9, (rows, N_SAMPLES))


def companion_files(name: str) -> dict[str, bytes]:
    """Return the files that belong to a seed of that name, by their own names."""
    samples = (_noise() * 99).astype("<f4").T.tobytes()
    if name.endswith(".vhdr"):
        return {"beside.eeg": samples, "beside.vmrk": _VMRK_TEXT.encode()}
    if name.endswith(".set"):
        return {"beside.fdt": samples}
    if name.startswith("external.") and name.endswith(".onnx"):
        return {"beside.bin": np.arange(8, dtype="f4").tobytes()}
    if name.startswith("split."):
        return {"beside-1.fif": _fif_bytes()}
    return {}


# --- MNE's ----------------------------------------------------------------------------


def fif_seeds() -> Iterator[tuple[str, LibraryFileWriter]]:
    yield "plain", lambda path: path.write_bytes(_fif_bytes()) and None
    yield (
        "listed",
        lambda path: path.write_bytes(_add_tag_directory(_fif_bytes())) and None,
    )
    yield (
        "split",
        lambda path: path.write_bytes(_add_next_file_reference(_fif_bytes())) and None,
    )


def _make_mne_raw() -> Any:
    info = mne.create_info([*CHANNEL_NAMES, "STI 014"], FS, ["eeg"] * 3 + ["stim"])
    raw = mne.io.RawArray(np.vstack([_noise() * 1e-5, np.zeros((1, N_SAMPLES))]), info)
    raw.set_meas_date(1_700_000_000.0)
    raw.set_annotations(mne.Annotations([1.0], [0.5], ["blink"]))
    return raw


def _fif_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a_raw.fif")
        _make_mne_raw().save(path, buffer_size_sec=1, overwrite=True)
        return path.read_bytes()


def _fif_tag(kind: int, type_: int, data: bytes) -> bytes:
    head = (kind, type_, len(data), 0)
    return b"".join(word.to_bytes(4, "big") for word in head) + data


def _add_next_file_reference(raw: bytes) -> bytes:
    """Add a reference to the next file in the block of the measurement."""
    number = (1).to_bytes(4, "big")
    block = (118).to_bytes(4, "big")
    reference = _fif_tag(104, 3, block) + _fif_tag(115, 3, (2).to_bytes(4, "big"))
    reference += _fif_tag(118, 10, b"beside-1.fif") + _fif_tag(117, 3, number)
    reference += _fif_tag(105, 3, block)
    at = raw.rindex(b"\0\0\0\x69\0\0\0\x03\0\0\0\x04")  # the end of the last block
    return raw[:at] + reference + raw[at:]


def _add_tag_directory(raw: bytes) -> bytes:
    """Append a directory of the tags of a file."""
    entries, at = [], 0
    while 0 <= at < len(raw) - 15:
        nbytes = int.from_bytes(raw[at + 8 : at + 12], "big")
        next_tag = int.from_bytes(raw[at + 12 : at + 16], "big", signed=True)
        entries.append(raw[at : at + 12] + at.to_bytes(4, "big"))
        at = next_tag or at + 16 + nbytes
    patched = bytearray(raw)
    patched[52:56] = len(raw).to_bytes(4, "big")
    return bytes(patched) + _fif_tag(102, 32, b"".join(entries))


_VHDR_TEXT = """Brain Vision Data Exchange Header File Version 1.0
[Common Infos]
Codepage=UTF-8
DataFile=beside.eeg
MarkerFile=beside.vmrk
DataFormat=BINARY
DataOrientation=MULTIPLEXED
NumberOfChannels=3
SamplingInterval=15625
[Binary Infos]
BinaryFormat=IEEE_FLOAT_32
[Channel Infos]
Ch1=Fz,,0.1,µV
Ch2=Cz,,0.1,µV
Ch3=Oz,,0.1,µV
[Comment]
nothing
"""
_VMRK_TEXT = """Brain Vision Data Exchange Marker File, Version 1.0
[Common Infos]
Codepage=UTF-8
DataFile=beside.eeg
[Marker Infos]
Mk1=New Segment,,1,1,0,20231114221320000000
Mk2=Stimulus,S  1,64,1,0
"""


def vhdr_seeds() -> Iterator[tuple[str, LibraryFileWriter]]:
    yield "plain", lambda path: path.write_text(_VHDR_TEXT, encoding="utf-8") and None


def gdf_seeds() -> Iterator[tuple[str, LibraryFileWriter]]:
    for version in ("1.25", "2.20"):
        yield (
            version,
            lambda path, version=version: write_gdf(path, version=version) and None,
        )


def set_seeds() -> Iterator[tuple[str, LibraryFileWriter]]:
    yield "inside", lambda path: _write_set(path, _noise() * 99)
    yield "packed", lambda path: _write_set(path, _noise() * 99, is_compressed=True)
    yield "fdt", lambda path: _write_set(path, "beside.fdt")
    yield "nested", lambda path: _write_set(path, "beside.fdt", is_nested=True)


def _write_set(
    path: Path, data: Any, *, is_compressed: bool = False, is_nested: bool = False
) -> None:
    channel_locations = np.zeros(3, [("labels", object), ("type", object)])
    channel_locations["labels"], channel_locations["type"] = CHANNEL_NAMES, "EEG"
    events = np.zeros(1, [("type", object), ("latency", "f8"), ("duration", "f8")])
    events["type"], events["latency"] = "blink", 9.0
    fields = {
        "nbchan": 3,
        "pnts": N_SAMPLES,
        "trials": 1,
        "srate": FS,
        "xmin": 0.0,
        "xmax": 5.0,
    }
    fields |= {
        "chanlocs": channel_locations,
        "event": events,
        "data": data,
        "history": "none",
    }
    variables: dict[str, Any] = {"EEG": fields} if is_nested else fields
    scipy.io.savemat(path, variables, do_compression=is_compressed, appendmat=False)


# --- HDF5, Zarr, Parquet --------------------------------------------------------------


def h5_seeds() -> Iterator[tuple[str, LibraryFileWriter]]:
    yield "plain", lambda path: _write_h5(path)
    yield "packed", lambda path: _write_h5(path, chunks=(1, 64), compression="gzip")
    yield "lzf", lambda path: _write_h5(path, chunks=(3, 64), compression="lzf")
    yield "latest", lambda path: _write_h5(path, libver="latest")


def _write_h5(path: Path, libver: str = "earliest", **dataset_options: Any) -> None:
    with h5py.File(path, "w", libver=libver) as file:
        data = file.create_dataset("eeg", data=_noise().astype("f4"), **dataset_options)
        data.attrs["unit"] = "uV"
        file["fs"] = FS
        file["channels"] = np.array(CHANNEL_NAMES, object)


def nwb_seeds() -> Iterator[tuple[str, LibraryFileWriter]]:
    yield "series", _write_nwb


def _write_nwb(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.attrs["nwb_version"] = "2.7.0"
        file["session_start_time"] = "2024-01-01T22:15:30+00:00"
        series = file.create_group("acquisition/eeg")
        series["data"] = (_noise() * 99).T.astype("i2")
        series["data"].attrs.update({"unit": "volts", "conversion": 1e-6})
        series["timestamps"] = np.arange(N_SAMPLES) / FS
        series["channel_conversion"] = np.ones(3)
        table = file.create_group("electrodes")
        table["id"] = np.arange(3)
        table["label"] = np.array(CHANNEL_NAMES, object)
        series["electrodes"] = np.arange(3)
        series["electrodes"].attrs["table"] = table.ref
        trials = file.create_group("intervals/trials")
        trials.attrs["neurodata_type"] = "TimeIntervals"
        trials["start_time"], trials["stop_time"] = [1.0], [2.0]
        trials["label"] = np.array(["blink"], object)


def mat_seeds() -> Iterator[tuple[str, LibraryFileWriter]]:
    yield "matrix", lambda path: _write_mat(path, is_set=False)
    yield "set", lambda path: _write_mat(path, is_set=True)


def _write_mat(path: Path, *, is_set: bool) -> None:
    """Write a file of MATLAB's version 7.3, or a set of EEGLAB in one.

    The set is refused for its suffix, or read as such.
    """
    with h5py.File(path, "w", userblock_size=512) as file:
        x = file.create_dataset("data" if is_set else "x", data=_noise().T)
        x.attrs["MATLAB_class"] = np.bytes_("double")
        fields: dict[str, float] = {"fs": FS}
        if is_set:
            fields = {"nbchan": 3, "srate": FS, "pnts": N_SAMPLES, "trials": 1}
        for name, value in fields.items():
            file[name] = np.full((1, 1), value)
            file[name].attrs["MATLAB_class"] = np.bytes_("double")
    raw = bytearray(path.read_bytes())
    raw[:19], raw[124:128] = b"MATLAB 7.3 MAT-file", b"\0\2IM"
    path.write_bytes(raw)


def zip_seeds() -> Iterator[tuple[str, LibraryFileWriter]]:
    for form in (2, 3):
        yield f"v{form}.zarr", lambda path, form=form: _write_zarr(path, form)
    yield "sharded.zarr", lambda path: _write_zarr(path, 3, shards=(3, 160))


def _write_zarr(path: Path, zarr_format: int, **array_options: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        group = zarr.create_group(folder, zarr_format=zarr_format)
        array = group.create_array(
            "eeg", data=_noise().astype("f4"), chunks=(3, 80), **array_options
        )
        array.attrs["fs"] = FS
        array.attrs["channels"] = CHANNEL_NAMES
        with zipfile.ZipFile(path, "w") as archive:
            for path_in_store in sorted(Path(folder).rglob("*")):
                if path_in_store.is_file():
                    info = zipfile.ZipInfo(path_in_store.relative_to(folder).as_posix())
                    archive.writestr(info, path_in_store.read_bytes())


def parquet_seeds() -> Iterator[tuple[str, LibraryFileWriter]]:
    for codec in ("zstd", "gzip", "snappy", "none"):
        yield codec, lambda path, codec=codec: _write_parquet(path, codec)


def _write_parquet(path: Path, codec: str) -> None:
    x = _noise()
    columns = {
        "time": np.arange(N_SAMPLES) / FS,
        "Fz": x[0],
        "Cz": (x[1] * 99).astype("i2"),
    }
    metadata = json.dumps({"recording": 1, "fs": FS, "units": {"Fz": "uV"}})
    table = pa.table(columns).replace_schema_metadata({"rlxweb": metadata})
    pq.write_table(table, path, compression=codec, row_group_size=100)


# --- audio ----------------------------------------------------------------------------


def audio_seeds(*kinds: tuple[str, str]) -> Iterator[tuple[str, LibraryFileWriter]]:
    """Seeds of containers of audio with these codings."""
    for container, coding in kinds:
        yield coding, lambda path, c=container, s=coding: _write_audio(path, c, s)


def _write_audio(path: Path, container: str, coding: str) -> None:
    out = io.BytesIO()
    x = np.repeat(_noise(1)[0], 4)
    soundfile.write(out, x, 16000, format=container, subtype=coding)
    path.write_bytes(out.getvalue())


# --- models ---------------------------------------------------------------------------


def onnx_seeds() -> Iterator[tuple[str, LibraryFileWriter]]:
    yield "small", lambda path: _write_onnx(path, is_external=False)
    yield "external", lambda path: _write_onnx(path, is_external=True)


def _write_onnx(path: Path, *, is_external: bool) -> None:
    shape = ("n", 8)
    weight = numpy_helper.from_array(np.arange(8, dtype="f4"), "w")
    if is_external:
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        for key, value in {"location": "beside.bin", "length": "32"}.items():
            entry = weight.external_data.add()
            entry.key, entry.value = key, value
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Softmax", ["a"], ["b"], axis=1),
        helper.make_node("ReduceSum", ["b", "axes"], ["y"], keepdims=0),
    ]
    axes = numpy_helper.from_array(np.array([1], "i8"), "axes")
    ins = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape[:1])]
    graph = helper.make_graph(nodes, "g", ins, outs, [weight, axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())


def rlxl_seeds() -> Iterator[tuple[str, LibraryFileWriter]]:
    yield "learned", lambda path: learned_result().save(path)
