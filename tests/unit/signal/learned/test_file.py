"""Files of learned transforms: the same bits back, and nothing else is taken."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import GraphFileError
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned import file
from rlxweb.signal.learned.network import exact
from tests.unit.signal.learned.steep import N, learned, steep

FIGURES = ("fs", "error", "worst", "recall", "asked")
Tensors = dict[str, tuple[str, list[int], bytes]]


def written() -> bytes:
    """The file of the transform that all tests share."""
    out = io.BytesIO()
    learned().save(out)
    return out.getvalue()


def taken_apart(data: bytes) -> tuple[dict[str, Any], Tensors]:
    """What the header says of it, and its tensors."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    told = json.loads(header.pop("__metadata__")[file.KEY])
    body = data[8 + size :]
    return told, {
        name: (one["dtype"], one["shape"], body[slice(*one["data_offsets"])])
        for name, one in header.items()
    }


def put_together(told: object, tensors: Tensors, key: str = file.KEY) -> bytes:
    header: dict[str, Any] = {"__metadata__": {key: json.dumps(told)}}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        offsets = [at, at + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    body = b"".join(data for _, _, data in tensors.values())
    return len(text).to_bytes(8, "little") + text + body


def test_what_was_saved_is_had_back_to_the_bit(tmp_path: Path) -> None:
    """A saved transform comes back to the bit from a path, bytes and a file."""
    path = tmp_path / "eeg.rlxl"
    own = learned().transform
    learned().save(path)
    assert path.read_bytes() == written()
    for source in (path, str(path), written(), io.BytesIO(written())):
        found = rlx.load_learned(source)
        for name in ("n", *FIGURES, "window", "detrend", "band", "k"):
            assert getattr(found, name) == getattr(own, name), name
        assert found.gates.tobytes() == own.gates.tobytes()
        assert found.program.phases == own.program.phases
        assert found.program.weights.tobytes() == own.program.weights.tobytes()
        assert (found.active, found.total) == (own.active, own.total)
    assert rlx.load_learned(own) is own
    assert put_together(*taken_apart(written())) == written()


def test_a_model_of_a_file_gives_the_bits_of_the_one_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "eeg.rlxl"
    learned().save(path)
    x = steep(2, 24_000, seed=5)[:, : 8 * N]
    asked: Any = {
        "fs": 2048.0,
        "nperseg": N,
        "fmin": 32.0,
        "fmax": 190.0,
        "k": 3,
        "preset": "scipy",
    }
    first, second = (
        rlx.welch_peaks(x, **asked, strategy="learned", model=model, device="cpu")
        for model in (path, learned().transform)
    )
    assert first.power.tobytes() == second.power.tobytes()
    assert first.bins.tobytes() == second.bins.tobytes()


def with_told(**changed: object) -> Callable[[Any, Tensors], bytes]:
    return lambda told, tensors: put_together({**told, **changed}, tensors)


def with_tensor(name: str, dtype: str, array: Any) -> Callable[[Any, Tensors], bytes]:
    def change(told: Any, tensors: Tensors) -> bytes:
        made = np.asarray(array)
        one = (dtype, list(made.shape), made.tobytes())
        return put_together(told, {**tensors, name: one})

    return change


def floats(name: str, at: int, value: float) -> Callable[[Any, Tensors], bytes]:
    """One number of a tensor is another."""

    def change(told: Any, tensors: Tensors) -> bytes:
        dtype, shape, data = tensors[name]
        array = np.frombuffer(data, {"F64": "<f8", "I64": "<i8"}[dtype]).copy()
        array[at] = value
        return put_together(told, {**tensors, name: (dtype, shape, array.tobytes())})

    return change


def without(name: str) -> Callable[[Any, Tensors], bytes]:
    return lambda told, tensors: put_together(
        told, {key: one for key, one in tensors.items() if key != name}
    )


def closed(told: Any, tensors: Tensors) -> bytes:
    """A file whose gates are all closed: its weights are another network's."""
    dtype, shape, data = tensors["gates"]
    return put_together(told, {**tensors, "gates": (dtype, shape, bytes(len(data)))})


def huge(told: Any, tensors: Tensors) -> bytes:
    """A small file that would be a program of gigabytes."""
    n, stages = 1 << 16, 16
    gates = np.full(stages * n // 16, 255, np.uint8)
    gates[: n // 16] = 0b01010101
    tensors = {**tensors, "gates": ("U8", [len(gates)], gates.tobytes())}
    tensors["window"] = ("F64", [n], np.ones(n).tobytes())
    return put_together({**told, "n": n, "first": 0, "stop": n // 2 + 1}, tensors)


HOSTILE: dict[str, tuple[Callable[[Any, Tensors], bytes], str]] = {
    "no bytes": (lambda told, tensors: b"", ""),
    "text": (lambda told, tensors: b"hello, this is no transform at all", ""),
    "another kind": (lambda told, tensors: put_together(told, tensors, "rlxweb"), "no"),
    "of a later format": (with_told(format=2), "format is 2"),
    "no dictionary": (lambda told, tensors: put_together([1], tensors), "says other"),
    "more said": (with_told(more=1), "says other"),
    "n is text": (with_told(n="128"), "n is '128'"),
    "n is true": (with_told(n=True), "n is True"),
    "n is a float": (with_told(n=128.0), "whole number"),
    "n is odd": (with_told(n=129), "no power of two"),
    "n is 0": (with_told(n=0), "no power of two"),
    "n is below 0": (with_told(n=-128), "no power of two"),
    "n is huge": (with_told(n=1 << 60), "at most 65,536"),
    "n is half": (with_told(n=N // 2), "bins|window"),
    "no bins": (with_told(stop=0), "bins"),
    "bins below 0": (with_told(first=-1), "bins"),
    "bins beyond": (with_told(stop=N), "within 0 to 64"),
    "k is 0": (with_told(k=0), "k is 0"),
    "k is beyond": (with_told(k=1000), "k is 1000"),
    "other m": (with_told(m=2), "transforms of 2"),
    "another detrend": (with_told(detrend="linear "), "detrend"),
    "detrend is no word": (with_told(detrend=None), "detrend"),
    "fs is 0": (floats("figures", 0, 0.0), "fs is 0"),
    "fs is no number": (floats("figures", 0, np.nan), "not finite"),
    "error below 0": (floats("figures", 1, -1.0), "error is -1"),
    "recall above 1": (floats("figures", 3, 1.5), "recall is 1.5"),
    "asked is infinite": (floats("figures", 4, np.inf), "not finite"),
    "a window of NaN": (floats("window", 5, np.nan), "not finite"),
    "a weight of NaN": (floats("weights", 0, np.nan), "not finite"),
    "another phase": (floats("phases", 0, 7), "phases are others"),
    "a phase below 0": (floats("phases", 0, -1), "phases are others"),
    "weights narrow": (with_tensor("weights", "F32", np.ones((2, 2), "f4")), "F32"),
    "weights flat": (with_tensor("weights", "F64", np.ones(4)), r"F64 \[4\]"),
    "phases as floats": (with_tensor("phases", "F64", np.ones(1)), "I64"),
    "a short window": (with_tensor("window", "F64", np.ones(N - 1)), "window"),
    "few gates": (with_tensor("gates", "U8", np.ones(3, np.uint8)), "gates"),
    "an extra tensor": (with_tensor("more", "F64", np.ones(2)), "holds 'more'"),
    "no window": (without("window"), "no window"),
    "no gates": (without("gates"), "no gates"),
    "no weights": (without("weights"), "no weights"),
    "other gates": (closed, "transforms|phases|weights"),
    "a program of gigabytes": (huge, "weights of 32,769 bins"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_breaks_a_rule_is_refused(name: str) -> None:
    """Any broken rule is the error of such files, and soon."""
    change, words = HOSTILE[name]
    with pytest.raises(GraphFileError, match=words or None):
        rlx.load_learned(change(*taken_apart(written())))


def test_half_a_file_is_refused_wherever_it_ends() -> None:
    data = written()
    for end in range(0, len(data), 64):
        with pytest.raises(GraphFileError):
            rlx.load_learned(data[:end])
    with pytest.raises(GraphFileError):
        rlx.load_learned(data + b"more")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(rlx.RlxError, match="there is no such file"):
        rlx.load_learned(tmp_path / "none.rlxl")


def test_transforms_of_any_length_have_programs_within_the_bound() -> None:
    """Even all bins of the longest transform have a program, at once."""
    program = exact(file.LONGEST, Band(0, file.LONGEST // 2 + 1))
    assert program.m == file.LONGEST
