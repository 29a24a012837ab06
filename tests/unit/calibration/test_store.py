"""Where calibrations are kept: files whole or not at all, strangers ignored."""

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

from rlxweb.calibration.cache_folder import (
    LARGEST_FILE,
    cache_folder,
    read_json,
    write_json,
)
from rlxweb.calibration.store import CalibrationStore, file_name
from rlxweb.cost.record import Calibration, Point
from rlxweb.cost.record_json import from_json
from rlxweb.errors import CalibrationWarning, InputError
from tests.threads import at_once, begin

POINTS = (Point("call", {}, 1_500.0, 0.1, 7), Point("copy", {"bytes": 64}, 9.0))
OURS = Calibration("gpu", "A card", "vulkan", "550.1", "0.1.0", "x86", POINTS, "now")
PARTS = ("engine", "backend", "driver", "rlxweb", "machine")
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=80)


def leftovers(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_document_is_written_and_read(tmp_path: Path) -> None:
    """Folders on the way are made; nothing else is left there."""
    path = tmp_path / "a" / "b" / "one.json"
    assert write_json(path, {"a": ["ü", 1.5, None]})
    assert read_json(path) == {"a": ["ü", 1.5, None]}
    assert write_json(path, [])
    assert read_json(path) == []
    assert leftovers(path.parent) == ["one.json"]


@pytest.mark.parametrize("error", [OSError(28, "No space left"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file(
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
    assert leftovers(tmp_path) == ["one.json"]
    assert write_json(path, "new")
    assert read_json(path) == "new"


def test_what_json_cannot_hold_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    write_json(path, "old")
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    assert read_json(path) == "old"
    assert leftovers(tmp_path) == ["one.json"]


def test_readers_see_a_whole_file_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    documents = [{"who": who, "rows": [who] * 5_000} for who in range(4)]
    write_json(path, documents[0])
    writers = begin(
        [lambda d=d: [write_json(path, d) for _ in range(20)] for d in documents]
    )
    seen = []
    while any(one.is_alive() for one in writers):
        seen.append(read_json(path))
    assert all(document in documents for document in [*seen, read_json(path)])
    assert leftovers(tmp_path) == ["one.json"]


NO_JSON: dict[str, bytes] = {
    "empty": b"",
    "cut off": b'{"schema": "rlxweb.calibration/1", "points": [',
    "not text": b"\xff\xfe\x00",
    "words": b"hello",
    "deep": b"[" * 100_000,
    "long number": b"9" * 10_000,
}


@pytest.mark.parametrize("name", NO_JSON)
def test_what_is_no_json_reads_as_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / "one.json"
    path.write_bytes(NO_JSON[name])
    assert read_json(path) is None


def test_no_file_no_folder_and_too_large_a_file_read_as_nothing(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    assert read_json(path) is None
    assert read_json(path / "below") is None
    assert read_json(tmp_path) is None
    path.write_bytes(b"[]" + b" " * (LARGEST_FILE - 2))
    assert read_json(path) == []
    path.write_bytes(b"[]" + b" " * (LARGEST_FILE - 1))
    assert read_json(path) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_among_the_files_is_not_waited_for(tmp_path: Path) -> None:
    """Pipes, terminals and folders are neither read nor written over."""
    os.mkfifo(tmp_path / "calibration-x.json")
    (tmp_path / "calibration-y.json").mkdir()
    (tmp_path / "calibration-z.json").symlink_to(os.devnull)
    known = CalibrationStore(tmp_path)
    found: list[object] = []

    def read() -> None:
        found.append(known.stored())
        found.extend(read_json(path) for path in tmp_path.iterdir())

    at_once([read])
    assert found == [[], None, None, None]
    with pytest.warns(CalibrationWarning, match="not a regular file"):
        assert not write_json(tmp_path / "calibration-x.json", {})


def test_the_folder_is_the_environments_or_the_platforms(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a folder of the platform records live as long as the process."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    store = CalibrationStore()
    path = store.save(OURS)
    assert path is not None
    assert path.parent == tmp_path / "here"
    monkeypatch.delenv("RLX_CACHE_DIR")
    folder = cache_folder()
    assert folder is not None
    assert folder.is_absolute()
    assert "rlxweb" in folder.parts
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert cache_folder() is None
    assert store.save(replace(OURS, driver="2")) is None
    assert store.load(OURS.identity) == OURS
    assert len(store.stored()) == 2
    assert CalibrationStore().load(OURS.identity) is None


@pytest.mark.parametrize("below", ["", "a/b"])
def test_a_folder_that_cannot_be_written(tmp_path: Path, below: str) -> None:
    """A folder that cannot be written is warned of once; records stay in memory."""
    (tmp_path / "file").write_text("in the way")
    folder = tmp_path / "file" / below
    store = CalibrationStore(folder)
    with pytest.warns(CalibrationWarning) as found:
        assert store.save(OURS) is None
    assert store.save(replace(OURS, driver="2")) is None
    (said,) = [str(w.message) for w in found]
    assert said.startswith(f"measurements cannot be kept in {folder} (")
    assert "as long as this process" in said
    assert "RLX_CACHE_DIR names another folder" in said
    assert store.load(OURS.identity) == OURS
    assert len(store.stored()) == 2
    assert CalibrationStore(folder).load(OURS.identity) is None
    assert CalibrationStore(folder).stored() == []


def test_a_record_is_found_by_the_next_process(tmp_path: Path) -> None:
    path = CalibrationStore(tmp_path).save(OURS)
    assert path == tmp_path / file_name(OURS.identity)
    assert CalibrationStore(tmp_path).load(OURS.identity) == OURS
    assert CalibrationStore(tmp_path).stored() == [OURS]


@pytest.mark.parametrize("part", PARTS)
def test_another_identity_is_not_ours(tmp_path: Path, part: str) -> None:
    """A record of another identity is not loaded, nor from a file under our name."""
    other = replace(OURS, **{part: "another"})
    store = CalibrationStore(tmp_path)
    store.save(other)
    assert store.load(OURS.identity) is None
    (tmp_path / file_name(other.identity)).rename(tmp_path / file_name(OURS.identity))
    fresh = CalibrationStore(tmp_path)
    assert fresh.load(OURS.identity) is None
    assert fresh.load(other.identity) is None
    fresh.save(OURS)
    assert CalibrationStore(tmp_path).load(OURS.identity) == OURS


POINT = {"what": "x", "size": {"n": 1}, "ns": 5.0, "spread": 0, "samples": 1}
WRONG_POINTS: dict[str, dict[str, Any]] = {
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
CHANGED: dict[str, dict[str, Any]] = {
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
    **{name: {"points": [POINT | one]} for name, one in WRONG_POINTS.items()},
}
FOREIGN: dict[str, Any] = {
    "nothing": None,
    "a list": [],
    "text": "calibration",
    "a number": 5,
    "empty": {},
    **{
        f"no {key}": {k: v for k, v in OURS.as_json().items() if k != key}
        for key in ("schema", "machine", "made")
    },
    **{name: OURS.as_json() | change for name, change in CHANGED.items()},
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_documents_are_no_records(name: str) -> None:
    with pytest.raises(InputError, match="not one of ours"):
        from_json(FOREIGN[name])


BAD = NO_JSON | {name: json.dumps(one).encode() for name, one in FOREIGN.items()}


@pytest.mark.parametrize("name", BAD)
def test_a_corrupt_or_foreign_file_is_as_good_as_none(
    tmp_path: Path, name: str
) -> None:
    """A corrupt or foreign file is ignored without a word, and written over."""
    (tmp_path / file_name(OURS.identity)).write_bytes(BAD[name])
    store = CalibrationStore(tmp_path)
    assert store.stored() == []
    assert store.load(OURS.identity) is None
    store.save(OURS)
    assert CalibrationStore(tmp_path).load(OURS.identity) == OURS


def test_everything_stored_is_listed(tmp_path: Path) -> None:
    """Records of any version are listed, memory before files; other files are left."""
    old = replace(OURS, rlxweb="0.0.1")
    CalibrationStore(tmp_path).save(old)
    CalibrationStore(tmp_path).save(OURS)
    (tmp_path / "corrections.json").write_text("{}")
    (tmp_path / "calibration-broken.json").write_text("{")
    store = CalibrationStore(tmp_path)
    assert {r.rlxweb for r in store.stored()} == {"0.0.1", "0.1.0"}
    newer = replace(OURS, made="later")
    store.save(newer)
    CalibrationStore(tmp_path).save(OURS)
    assert newer in store.stored()
    assert OURS not in store.stored()


def test_forgetting_drops_memory_and_looks_again(tmp_path: Path) -> None:
    store = CalibrationStore(tmp_path)
    assert store.load(OURS.identity) is None
    CalibrationStore(tmp_path).save(OURS)
    store.forget()
    assert store.load(OURS.identity) == OURS
    (tmp_path / file_name(OURS.identity)).unlink()
    assert store.load(OURS.identity) == OURS
    store.forget()
    assert store.load(OURS.identity) is None


def test_threads_may_save_and_load_at_once(tmp_path: Path) -> None:
    store = CalibrationStore(tmp_path)
    records = [replace(OURS, driver=str(n)) for n in range(8)]
    wrong: list[object] = []

    def work(record: Calibration) -> None:
        for other in records:
            store.save(record)
            found = store.load(other.identity)
            if found not in (None, other):
                wrong.append(found)

    at_once([partial(work, r) for r in records])
    assert wrong == []
    fresh = CalibrationStore(tmp_path)
    assert [fresh.load(r.identity) for r in records] == records


@example([("a b", "c", "", "", ""), ("a", "b c", "", "", "")])
@example([("a", "", "", "", ""), ("", "a", "", "", "")])
@example([("llvmpipe " * 20, "vulkan", "", "", ""), ("", "", "", "", "")])
@given(st.lists(st.tuples(*[NAMES] * 5), min_size=2, max_size=2))
def test_file_names_are_plain_and_apart(pair: list[tuple[str, ...]]) -> None:
    """File names are plain and differ whatever a driver calls itself."""
    names = [file_name(identity) for identity in pair]
    for name in names:
        assert re.fullmatch(r"calibration-[a-z0-9-]{0,60}-[0-9a-f]{12}\.json", name)
    assert (names[0] == names[1]) == (pair[0] == pair[1])


@pytest.mark.skipif(os.name != "posix", reason="links want rights on Windows")
def test_a_link_in_the_cache_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """A link is replaced: whoever may write there could lead it to any file of ours."""
    precious, path = tmp_path / "precious", tmp_path / "cache" / "record.json"
    precious.write_text("precious")
    path.parent.mkdir()
    path.symlink_to(precious)
    assert write_json(path, {"figure": 1})
    assert precious.read_text() == "precious"
    assert not path.is_symlink()
    assert read_json(path) == {"figure": 1}
