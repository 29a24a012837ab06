"""Files of learned transforms: exact round trips and refusal of everything else."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import GraphFileError
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.learned import transform_file
from rlxweb.signal.learned.gated_fft import exact_program
from tests.unit.signal.learned.red_noise import N, learned_result, red_noise

FLOAT_FIELDS = ("fs", "error", "worst", "recall", "asked")
TensorTable = dict[str, tuple[str, list[int], bytes]]


def saved_bytes() -> bytes:
    """Return the saved bytes of the shared transform."""
    buffer = io.BytesIO()
    learned_result().save(buffer)
    return buffer.getvalue()


def parse_file(data: bytes) -> tuple[dict[str, Any], TensorTable]:
    """Return the metadata and the tensors of a file."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    metadata = json.loads(
        header.pop("__metadata__")[transform_file.TRANSFORM_METADATA_KEY]
    )
    body = data[8 + size :]
    return metadata, {
        name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def build_file(
    metadata: object,
    tensors: TensorTable,
    key: str = transform_file.TRANSFORM_METADATA_KEY,
) -> bytes:
    """Return the bytes of a file with this metadata and these tensors."""
    header: dict[str, Any] = {"__metadata__": {key: json.dumps(metadata)}}
    offset = 0
    for name, (dtype, shape, data) in tensors.items():
        offsets = [offset, offset + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    body = b"".join(data for _, _, data in tensors.values())
    return len(text).to_bytes(8, "little") + text + body


def test_saved_transform_round_trip(tmp_path: Path) -> None:
    """A saved transform loads bit for bit from a path, bytes and a file object."""
    path = tmp_path / "eeg.rlxl"
    transform = learned_result().transform
    learned_result().save(path)
    assert path.read_bytes() == saved_bytes()
    for source in (path, str(path), saved_bytes(), io.BytesIO(saved_bytes())):
        loaded = rlx.load_learned(source)
        for name in ("n", *FLOAT_FIELDS, "window", "detrend", "band", "k"):
            assert getattr(loaded, name) == getattr(transform, name), name
        assert loaded.gates.tobytes() == transform.gates.tobytes()
        assert loaded.program.phases == transform.program.phases
        assert loaded.program.weights.tobytes() == transform.program.weights.tobytes()
        assert (loaded.active, loaded.total) == (transform.active, transform.total)
    assert rlx.load_learned(transform) is transform
    assert build_file(*parse_file(saved_bytes())) == saved_bytes()


def test_file_model_equals_in_memory_model(tmp_path: Path) -> None:
    path = tmp_path / "eeg.rlxl"
    learned_result().save(path)
    x = red_noise(2, 24_000, seed=5)[:, : 8 * N]
    options: Any = {
        "fs": 2048.0,
        "nperseg": N,
        "fmin": 32.0,
        "fmax": 190.0,
        "k": 3,
        "preset": "scipy",
    }
    first, second = (
        rlx.welch_peaks(x, **options, strategy="learned", model=model, device="cpu")
        for model in (path, learned_result().transform)
    )
    assert first.power.tobytes() == second.power.tobytes()
    assert first.bins.tobytes() == second.bins.tobytes()


def with_metadata(**changed: object) -> Callable[[Any, TensorTable], bytes]:
    """Return a change that sets metadata entries."""
    return lambda metadata, tensors: build_file({**metadata, **changed}, tensors)


def with_replaced_tensor(
    name: str, dtype: str, array: Any
) -> Callable[[Any, TensorTable], bytes]:
    """Return a change that replaces or adds a tensor."""

    def change(metadata: Any, tensors: TensorTable) -> bytes:
        values = np.asarray(array)
        entry = (dtype, list(values.shape), values.tobytes())
        return build_file(metadata, {**tensors, name: entry})

    return change


def with_changed_number(
    name: str, index: int, value: float
) -> Callable[[Any, TensorTable], bytes]:
    """Return a change that replaces one number of a tensor."""

    def change(metadata: Any, tensors: TensorTable) -> bytes:
        dtype, shape, data = tensors[name]
        array = np.frombuffer(data, {"F64": "<f8", "I64": "<i8"}[dtype]).copy()
        array[index] = value
        return build_file(metadata, {**tensors, name: (dtype, shape, array.tobytes())})

    return change


def without_tensor(name: str) -> Callable[[Any, TensorTable], bytes]:
    """Return a change that removes a tensor."""
    return lambda metadata, tensors: build_file(
        metadata, {key: entry for key, entry in tensors.items() if key != name}
    )


def with_closed_gates(metadata: Any, tensors: TensorTable) -> bytes:
    """Close all gates, so that the weights belong to another network."""
    dtype, shape, data = tensors["gates"]
    return build_file(metadata, {**tensors, "gates": (dtype, shape, bytes(len(data)))})


def with_huge_program(metadata: Any, tensors: TensorTable) -> bytes:
    """Describe in a small file a program that would take gigabytes."""
    n, stages = 1 << 16, 16
    gates = np.full(stages * n // 16, 255, np.uint8)
    gates[: n // 16] = 0b01010101
    tensors = {**tensors, "gates": ("U8", [len(gates)], gates.tobytes())}
    tensors["window"] = ("F64", [n], np.ones(n).tobytes())
    return build_file({**metadata, "n": n, "first": 0, "stop": n // 2 + 1}, tensors)


MALFORMED_FILES: dict[str, tuple[Callable[[Any, TensorTable], bytes], str]] = {
    "no bytes": (lambda metadata, tensors: b"", ""),
    "text": (lambda metadata, tensors: b"hello, this is no transform at all", ""),
    "another kind": (
        lambda metadata, tensors: build_file(metadata, tensors, "rlxweb"),
        "no",
    ),
    "of a later format": (with_metadata(format=2), "format version is 2"),
    "no dictionary": (
        lambda metadata, tensors: build_file([1], tensors),
        "missing or unknown keys",
    ),
    "more said": (with_metadata(more=1), "missing or unknown keys"),
    "n is text": (with_metadata(n="128"), "n is '128'"),
    "n is true": (with_metadata(n=True), "n is True"),
    "n is a float": (with_metadata(n=128.0), "expected an integer"),
    "n is odd": (with_metadata(n=129), "not a power of two"),
    "n is 0": (with_metadata(n=0), "not a power of two"),
    "n is below 0": (with_metadata(n=-128), "not a power of two"),
    "n is huge": (with_metadata(n=1 << 60), "at most 65,536"),
    "n is half": (with_metadata(n=N // 2), "bins|window"),
    "no bins": (with_metadata(stop=0), "bins"),
    "bins below 0": (with_metadata(first=-1), "bins"),
    "bins beyond": (with_metadata(stop=N), "within 0 to 64"),
    "k is 0": (with_metadata(k=0), "k is 0"),
    "k is beyond": (with_metadata(k=1000), "k is 1000"),
    "other m": (with_metadata(m=2), "length of the transforms is 2"),
    "another detrend": (with_metadata(detrend="linear "), "detrend"),
    "detrend is no word": (with_metadata(detrend=None), "detrend"),
    "fs is 0": (with_changed_number("figures", 0, 0.0), "fs is 0"),
    "fs is no number": (with_changed_number("figures", 0, np.nan), "not finite"),
    "error below 0": (with_changed_number("figures", 1, -1.0), "error is -1"),
    "recall above 1": (with_changed_number("figures", 3, 1.5), "recall is 1.5"),
    "asked is infinite": (with_changed_number("figures", 4, np.inf), "not finite"),
    "a window of NaN": (with_changed_number("window", 5, np.nan), "not finite"),
    "a weight of NaN": (with_changed_number("weights", 0, np.nan), "not finite"),
    "another phase": (with_changed_number("phases", 0, 7), "phases do not match"),
    "a phase below 0": (with_changed_number("phases", 0, -1), "phases do not match"),
    "weights narrow": (
        with_replaced_tensor("weights", "F32", np.ones((2, 2), "f4")),
        "F32",
    ),
    "weights flat": (with_replaced_tensor("weights", "F64", np.ones(4)), r"F64 \[4\]"),
    "phases as floats": (with_replaced_tensor("phases", "F64", np.ones(1)), "I64"),
    "a short window": (with_replaced_tensor("window", "F64", np.ones(N - 1)), "window"),
    "few gates": (with_replaced_tensor("gates", "U8", np.ones(3, np.uint8)), "gates"),
    "an extra tensor": (
        with_replaced_tensor("more", "F64", np.ones(2)),
        "unknown tensor 'more'",
    ),
    "no window": (without_tensor("window"), "tensor 'window' is missing"),
    "no gates": (without_tensor("gates"), "tensor 'gates' is missing"),
    "no weights": (without_tensor("weights"), "tensor 'weights' is missing"),
    "other gates": (with_closed_gates, "transforms|phases|weights"),
    "a program of gigabytes": (with_huge_program, "weights for 32,769 bins"),
}


@pytest.mark.parametrize("name", MALFORMED_FILES)
def test_malformed_files_are_rejected(name: str) -> None:
    """Every broken rule raises GraphFileError, and quickly."""
    change, message = MALFORMED_FILES[name]
    with pytest.raises(GraphFileError, match=message or None):
        rlx.load_learned(change(*parse_file(saved_bytes())))


def test_truncated_files_are_rejected() -> None:
    data = saved_bytes()
    for end in range(0, len(data), 64):
        with pytest.raises(GraphFileError):
            rlx.load_learned(data[:end])
    with pytest.raises(GraphFileError):
        rlx.load_learned(data + b"more")


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(rlx.RlxError, match="the file does not exist"):
        rlx.load_learned(tmp_path / "none.rlxl")


def test_longest_transform_has_a_program() -> None:
    """Even all bins of the longest transform have a program."""
    program = exact_program(
        transform_file.MAX_NPERSEG, BinRange(0, transform_file.MAX_NPERSEG // 2 + 1)
    )
    assert program.m == transform_file.MAX_NPERSEG
