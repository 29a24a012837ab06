"""Storage of calibrations: files are written atomically, foreign files are ignored."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlxweb.core.cache_folder import (
    MAX_FILE_NBYTES,
    cache_folder,
    read_json,
    write_json,
)
from rlxweb.core.errors import CalibrationWarning, InputError
from rlxweb.cost.calibration_json import calibration_from_json
from rlxweb.cost.calibration_record import (
    Calibration,
    MeasuredPoint,
)
from rlxweb.select.calibration.calibration_store import (
    CalibrationStore,
    calibration_file_name,
)
from tests.run_in_threads import run_concurrently, start_threads

POINTS = (
    MeasuredPoint("call", {}, 1_500.0, 0.1, 7),
    MeasuredPoint("copy", {"bytes": 64}, 9.0),
)
RECORD = Calibration("gpu", "A card", "vulkan", "550.1", "0.1.0", "x86", POINTS, "now")
IDENTITY_FIELDS = ("engine", "backend", "driver", "rlxweb", "machine")
NAME_STRATEGY = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), max_size=80
)


def file_names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_document_is_written_and_read(tmp_path: Path) -> None:
    """Folders on the way are made; nothing else is left there."""
    path = tmp_path / "a" / "b" / "one.json"
    assert write_json(path, {"a": ["ü", 1.5, None]})
    assert read_json(path) == {"a": ["ü", 1.5, None]}
    assert write_json(path, [])
    assert read_json(path) == []
    assert file_names(path.parent) == ["one.json"]


@pytest.mark.parametrize("error", [OSError(28, "No space left"), KeyboardInterrupt()])
def test_failed_write_keeps_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A full disk is warned about once; an interrupt is passed on; no litter."""
    path = tmp_path / "one.json"
    assert write_json(path, "old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", Mock(side_effect=error))
        if isinstance(error, OSError):
            with pytest.warns(CalibrationWarning, match="No space left"):
                assert write_json(path, "new") is False
            assert write_json(path, "new") is False
        else:
            with pytest.raises(KeyboardInterrupt):
                write_json(path, "new")
    assert read_json(path) == "old"
    assert file_names(tmp_path) == ["one.json"]
    assert write_json(path, "new")
    assert read_json(path) == "new"


def test_unserializable_value_keeps_old_file(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    write_json(path, "old")
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    assert read_json(path) == "old"
    assert file_names(tmp_path) == ["one.json"]


def test_readers_see_complete_file_during_write(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    documents = [{"who": who, "rows": [who] * 5_000} for who in range(4)]
    write_json(path, documents[0])
    writers = start_threads(
        [lambda d=d: [write_json(path, d) for _ in range(20)] for d in documents]
    )
    read_documents = []
    while any(writer.is_alive() for writer in writers):
        read_documents.append(read_json(path))
    assert all(document in documents for document in [*read_documents, read_json(path)])
    assert file_names(tmp_path) == ["one.json"]


INVALID_JSON: dict[str, bytes] = {
    "empty": b"",
    "cut off": b'{"schema": "rlxweb.calibration/1", "points": [',
    "not text": b"\xff\xfe\x00",
    "words": b"hello",
    "deep": b"[" * 100_000,
    "long number": b"9" * 10_000,
}


@pytest.mark.parametrize("name", INVALID_JSON)
def test_invalid_json_reads_as_none(tmp_path: Path, name: str) -> None:
    path = tmp_path / "one.json"
    path.write_bytes(INVALID_JSON[name])
    assert read_json(path) is None


def test_missing_and_too_large_files_read_as_none(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    assert read_json(path) is None
    assert read_json(path / "below") is None
    assert read_json(tmp_path) is None
    path.write_bytes(b"[]" + b" " * (MAX_FILE_NBYTES - 2))
    assert read_json(path) == []
    path.write_bytes(b"[]" + b" " * (MAX_FILE_NBYTES - 1))
    assert read_json(path) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_special_files_are_not_read(tmp_path: Path) -> None:
    """Pipes, terminals and folders are neither read nor overwritten."""
    os.mkfifo(tmp_path / "calibration-x.json")
    (tmp_path / "calibration-y.json").mkdir()
    (tmp_path / "calibration-z.json").symlink_to(os.devnull)
    store = CalibrationStore(tmp_path)
    results: list[object] = []

    def read() -> None:
        results.append(store.load_all())
        results.extend(read_json(path) for path in tmp_path.iterdir())

    run_concurrently([read])
    assert results == [[], None, None, None]
    with pytest.warns(CalibrationWarning, match="not a regular file"):
        assert not write_json(tmp_path / "calibration-x.json", {})


def test_cache_folder_is_from_environment_or_platform(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a folder of the platform records live as long as the process."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    store = CalibrationStore()
    path = store.save(RECORD)
    assert path is not None
    assert path.parent == tmp_path / "here"
    monkeypatch.delenv("RLX_CACHE_DIR")
    folder = cache_folder()
    assert folder is not None
    assert folder.is_absolute()
    assert "rlxweb" in folder.parts
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert cache_folder() is None
    assert store.save(replace(RECORD, driver="2")) is None
    assert store.load(RECORD.identity) == RECORD
    assert len(store.load_all()) == 2
    assert CalibrationStore().load(RECORD.identity) is None


@pytest.mark.parametrize("below", ["", "a/b"])
def test_unwritable_folder_warns_once(tmp_path: Path, below: str) -> None:
    """A folder that cannot be written is warned of once; records stay in memory."""
    (tmp_path / "file").write_text("in the way")
    folder = tmp_path / "file" / below
    store = CalibrationStore(folder)
    with pytest.warns(CalibrationWarning) as caught:
        assert store.save(RECORD) is None
    assert store.save(replace(RECORD, driver="2")) is None
    (message,) = [str(w.message) for w in caught]
    assert message.startswith(f"measurements cannot be saved in {folder} (")
    assert "are lost when this process ends" in message
    assert "set RLX_CACHE_DIR to another folder" in message
    assert store.load(RECORD.identity) == RECORD
    assert len(store.load_all()) == 2
    assert CalibrationStore(folder).load(RECORD.identity) is None
    assert CalibrationStore(folder).load_all() == []


def test_record_is_loaded_by_next_process(tmp_path: Path) -> None:
    path = CalibrationStore(tmp_path).save(RECORD)
    assert path == tmp_path / calibration_file_name(RECORD.identity)
    assert CalibrationStore(tmp_path).load(RECORD.identity) == RECORD
    assert CalibrationStore(tmp_path).load_all() == [RECORD]


@pytest.mark.parametrize("part", IDENTITY_FIELDS)
def test_record_of_other_identity_is_not_loaded(tmp_path: Path, part: str) -> None:
    """A record of another identity is not loaded, even from a file under our name."""
    other = replace(RECORD, **{part: "another"})
    store = CalibrationStore(tmp_path)
    store.save(other)
    assert store.load(RECORD.identity) is None
    (tmp_path / calibration_file_name(other.identity)).rename(
        tmp_path / calibration_file_name(RECORD.identity)
    )
    fresh = CalibrationStore(tmp_path)
    assert fresh.load(RECORD.identity) is None
    assert fresh.load(other.identity) is None
    fresh.save(RECORD)
    assert CalibrationStore(tmp_path).load(RECORD.identity) == RECORD


POINT = {"what": "x", "size": {"n": 1}, "ns": 5.0, "spread": 0, "samples": 1}
INVALID_POINTS: dict[str, dict[str, Any]] = {
    "size a list": {"size": [1]},
    "size endless": {"size": {"n": math.inf}},
    "no time": {"ns": 0},
    "less than no time": {"ns": -1},
    "time in words": {"ns": "nan"},
    "endless": {"ns": math.inf},
    "huge": {"ns": 10**400},
    "spread below 0": {"spread": -0.1},
    "nothing moved": {"what": "copy"},
    "0 bytes": {"what": "upload", "size": {"bytes": 0}},
    "no rows": {"what": "fft"},
    "no samples": {"samples": 0},
    "samples endless": {"samples": math.inf},
}
INVALID_CHANGES: dict[str, dict[str, Any]] = {
    "schema": {"schema": "rlxweb.calibration/2"},
    "schema before the first": {"schema": "rlxweb.calibration/0"},
    "engine a number": {"engine": 7},
    "engine null": {"engine": None},
    "points null": {"points": None},
    "points a number": {"points": 5},
    "points of text": {"points": ["submit"]},
    "a point of one word": {"points": [{"what": "submit"}]},
    "left_out a number": {"left_out": 3},
    "took nan": {"took_s": math.nan},
    "took long": {"took_s": "long"},
    **{name: {"points": [POINT | one]} for name, one in INVALID_POINTS.items()},
}
FOREIGN_DOCUMENTS: dict[str, Any] = {
    "nothing": None,
    "a list": [],
    "text": "calibration",
    "a number": 5,
    "empty": {},
    **{
        f"no {key}": {k: v for k, v in RECORD.as_json().items() if k != key}
        for key in ("schema", "machine", "made")
    },
    **{name: RECORD.as_json() | change for name, change in INVALID_CHANGES.items()},
}


@pytest.mark.parametrize("name", FOREIGN_DOCUMENTS)
def test_foreign_documents_are_rejected(name: str) -> None:
    with pytest.raises(InputError, match="not a valid rlxweb calibration"):
        calibration_from_json(FOREIGN_DOCUMENTS[name])


INVALID_FILES = INVALID_JSON | {
    name: json.dumps(one).encode() for name, one in FOREIGN_DOCUMENTS.items()
}


@pytest.mark.parametrize("name", INVALID_FILES)
def test_corrupt_or_foreign_file_is_ignored(tmp_path: Path, name: str) -> None:
    """A corrupt or foreign file is ignored silently and overwritten."""
    (tmp_path / calibration_file_name(RECORD.identity)).write_bytes(INVALID_FILES[name])
    store = CalibrationStore(tmp_path)
    assert store.load_all() == []
    assert store.load(RECORD.identity) is None
    store.save(RECORD)
    assert CalibrationStore(tmp_path).load(RECORD.identity) == RECORD


def test_everything_stored_is_listed(tmp_path: Path) -> None:
    """Records of any version are listed, memory before files; other files are left."""
    old = replace(RECORD, rlxweb="0.0.1")
    CalibrationStore(tmp_path).save(old)
    CalibrationStore(tmp_path).save(RECORD)
    (tmp_path / "corrections.json").write_text("{}")
    (tmp_path / "calibration-broken.json").write_text("{")
    store = CalibrationStore(tmp_path)
    assert {r.rlxweb for r in store.load_all()} == {"0.0.1", "0.1.0"}
    newer = replace(RECORD, made="later")
    store.save(newer)
    CalibrationStore(tmp_path).save(RECORD)
    assert newer in store.load_all()
    assert RECORD not in store.load_all()


def test_forget_drops_memory_and_reads_files_again(tmp_path: Path) -> None:
    store = CalibrationStore(tmp_path)
    assert store.load(RECORD.identity) is None
    CalibrationStore(tmp_path).save(RECORD)
    store.clear()
    assert store.load(RECORD.identity) == RECORD
    (tmp_path / calibration_file_name(RECORD.identity)).unlink()
    assert store.load(RECORD.identity) == RECORD
    store.clear()
    assert store.load(RECORD.identity) is None


def test_threads_may_save_and_load_at_once(tmp_path: Path) -> None:
    store = CalibrationStore(tmp_path)
    records = [replace(RECORD, driver=str(n)) for n in range(8)]
    wrong_records: list[object] = []

    def save_and_load(record: Calibration) -> None:
        for other in records:
            store.save(record)
            loaded = store.load(other.identity)
            if loaded not in (None, other):
                wrong_records.append(loaded)

    run_concurrently([partial(save_and_load, r) for r in records])
    assert wrong_records == []
    fresh = CalibrationStore(tmp_path)
    assert [fresh.load(r.identity) for r in records] == records


@example([("a b", "c", "", "", ""), ("a", "b c", "", "", "")])
@example([("a", "", "", "", ""), ("", "a", "", "", "")])
@example([("llvmpipe " * 20, "vulkan", "", "", ""), ("", "", "", "", "")])
@given(st.lists(st.tuples(*[NAME_STRATEGY] * 5), min_size=2, max_size=2))
def test_file_names_are_plain_and_distinct(pair: list[tuple[str, ...]]) -> None:
    """File names are plain and differ whatever a driver calls itself."""
    names = [calibration_file_name(identity) for identity in pair]
    for name in names:
        assert re.fullmatch(r"calibration-[a-z0-9-]{0,60}-[0-9a-f]{12}\.json", name)
    assert (names[0] == names[1]) == (pair[0] == pair[1])


@pytest.mark.skipif(os.name != "posix", reason="links want rights on Windows")
def test_a_link_in_the_cache_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """A link is replaced, because anyone who may write there could point it at any file
    of ours.
    """
    precious, path = tmp_path / "precious", tmp_path / "cache" / "record.json"
    precious.write_text("precious")
    path.parent.mkdir()
    path.symlink_to(precious)
    assert write_json(path, {"figure": 1})
    assert precious.read_text() == "precious"
    assert not path.is_symlink()
    assert read_json(path) == {"figure": 1}
