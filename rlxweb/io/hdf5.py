"""HDF5 files: an array of one, read by slices; MATLAB's of version 7.3 are such too.

The one place where h5py is loaded, and not before such a file is opened. Owns which
array of a file is the recording and how its samples are read; what attributes say is
`attributes`' business, what NWB says `nwb`'s. What lies in other files is not read.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np

from rlxweb.advice import Advice, Blank
from rlxweb.digital import is_digital
from rlxweb.errors import RlxError, UnknownName, did_you_mean, not_installed, shown
from rlxweb.io import bounds
from rlxweb.io.as_file import SourceFile
from rlxweb.io.attributes import BESIDE, notes_of
from rlxweb.io.clock import Clock, agreed, find_rate, runs_one_way
from rlxweb.io.clock_names import ClockName, clock_name, unit_scale
from rlxweb.io.contents import Contents, Found, Layout, Samples, Stream, listed
from rlxweb.io.hdf5_access import (
    Chunks,
    all_arrays,
    attribute,
    check_array,
    check_tree,
    child,
    is_array,
    lies_elsewhere,
    whole,
)
from rlxweb.io.npy import is_sample_dtype, native
from rlxweb.io.source import ByteSource
from rlxweb.io.strips import Strips, rows_of
from rlxweb.whole_file import reason

_EXTRA = "pip install 'rlxweb[hdf5]'"
_NO_NUMBERS: Final = ("char", "cell", "struct", "logical", "function_handle")
_EEGLAB: Final = {"nbchan", "srate"}
_READ_ATTRIBUTES: Final = (*BESIDE, "scale_factor", "add_offset")


def read_hdf5(source: ByteSource, array: str | None, layout: Layout) -> Contents:
    """What one array of an HDF5 file holds; of NWB, one of its series.

    Errors   RecordingError for a broken file, what is no recording, and where several
             arrays could be meant; UnknownName when `array` is not in it; Unsupported
             where h5py is missing
    """
    file = _opened(source)
    source.at_end.append(file.close)
    with faults(source):
        is_nwb = "nwb_version" in file.attrs
        inner = child(source, file, "EEG")
        inner = file if inner is None else inner
        is_eeglab = hasattr(inner, "keys") and {*inner} >= _EEGLAB
    if is_eeglab:
        from rlxweb.io.mne_raw import read_by_mne

        return read_by_mne(source, "EEGLAB")
    if is_nwb:
        from rlxweb.io.nwb import read_nwb

        return read_nwb(source, file, array)
    with faults(source):
        return _read(source, file, array, layout)


def check_eeglab(source: ByteSource) -> list[str]:
    """Check a set of EEGLAB that is HDF5; return the names of files of samples in it.

    Raises
    ------
    RecordingError
        For links to other files, and for arrays that claim more than the file may.
    """
    file = _opened(source)
    names = []
    try:
        with faults(source):
            check_tree(source, file, _address)
            inner = child(source, file, "EEG")
            for group in (file, inner):
                data = child(source, group, "data") if hasattr(group, "keys") else None
                if not is_array(data):
                    continue
                if attribute(source, data, "MATLAB_class") in (b"char", "char"):
                    codes = whole(source, data).ravel()
                    names.append("".join(map(chr, codes.astype(int).tolist())))
    finally:
        file.close()
    return names


def _address(node: Any) -> int:
    """Return where in its file an array or group lies."""
    import h5py

    address: int = h5py.h5o.get_info(node.id).addr
    return address


def _opened(source: ByteSource) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise not_installed(source.doing, "h5py", _EXTRA) from error
    with faults(source):
        file = h5py.File(SourceFile(source), "r")
    _open_files[id(file)] = file
    return file


# HDF5 closes what is open when the process ends, and would then ask a file object of
# Python for it, which ends the process by a signal.
_open_files: WeakValueDictionary[int, Any] = WeakValueDictionary()


@atexit.register
def _close_all() -> None:
    for file in list(_open_files.values()):
        file.close()


@contextmanager
def faults(source: ByteSource) -> Iterator[None]:
    """Whatever h5py raises over a file is a RecordingError."""
    try:
        yield
    except RlxError:
        raise
    except Exception as error:
        raise source.error(
            f"h5py cannot read it ({reason(error)})",
            hint="copy it again from where it came, or write it again",
        ) from error


def _read(source: ByteSource, file: Any, array: str | None, layout: Layout) -> Contents:
    arrays, virtual = all_arrays(source, file)
    able = [name for name in arrays if _could_be(name, arrays)]
    name = picked(source, arrays, array, able, virtual)
    for other in virtual if array is None else ():
        source.warn(f"{lies_elsewhere(source, other).problem}; it is passed over")
    data = arrays[name]
    is_matlab = "MATLAB_class" in data.attrs
    given: Layout = layout
    if is_matlab:  # which writes an array with its axes turned about
        given = "samples-first" if layout == "channels-first" else "channels-first"
    n_channels, n_samples, is_turned = oriented(source, name, data, given)
    beside = _beside(source, data.parent, is_matlab)
    notes = notes_of(
        source,
        [_plain(source, data), beside],
        n_channels,
        is_digital(native(data.dtype)),
    )
    clock, whose = _clock_beside(source, data.parent, n_samples)
    fs, tolerance, timing = agreed(source, notes.fs, "attributes", clock, whose)
    own = native(data.dtype)
    stream = Stream(
        tuple(range(n_channels)),
        fs,
        n_samples,
        np.dtype(np.float64) if notes.is_scaled else own,
        ArrayReader(source, data, is_turned, n_samples),
        tolerance,
        digital=own if is_digital(own) else None,
        timing=timing,
    )
    found = tuple(
        Found(label, unit, gain=notes.gain, offset=notes.offset)
        for label, unit in zip(notes.channels, notes.units, strict=True)
    )
    return Contents(
        "MATLAB" if is_matlab else "HDF5", found, (stream,), notes.rate_note
    )


def picked(
    source: ByteSource,
    there: Mapping[str, Any],
    array: str | None,
    able: Sequence[str],
    virtual: Sequence[str],
) -> str:
    """Return the name of the recording: the one asked for, or the one that could be.

    A virtual array is refused where it is asked for, or alone there.

    Raises
    ------
    UnknownName
        For a name that is not there.
    RecordingError
        Where none could be, or several.
    """
    name = "" if array is None else array.strip("/")
    meant = [one for one in virtual if one.removesuffix("/data") == name]
    if meant or (virtual and array is None and not able):
        raise lies_elsewhere(source, [*meant, *virtual][0])
    if array is not None:
        if name in there:
            return name
        raise UnknownName(
            source.doing,
            f"there is no array {array!r}",
            f"arrays: {listed(able or there)}",
            did_you_mean(name, there),
        )
    if len(able) == 1:
        return able[0]
    if not able:
        raise source.error(
            "no array in it could be a recording",
            f"arrays: {listed(there)}; wanted: numbers, 1 or 2 axes",
        )
    raise source.error(
        f"{len(able)} arrays could be the recording: {listed(able)}",
        "one is read at a time",
        Advice("name it: {}", array=Blank("NAME")),
    )


def _could_be(name: str, arrays: Mapping[str, Any]) -> bool:
    own, data = name.rpartition("/")[2].lower(), arrays[name]
    is_note = own in BESIDE or clock_name(own) is not None
    return (
        not is_note
        and is_numbers(data)
        and len(data.shape) in (1, 2)
        and prod(data.shape) > 1
    )


def is_numbers(data: Any) -> bool:
    """True for an array of what samples can be."""
    if not is_sample_dtype(data.dtype):
        return False
    said = data.attrs.get("MATLAB_class", b"")
    kind = said.decode("latin-1") if isinstance(said, bytes) else str(said)
    return kind not in _NO_NUMBERS


def oriented(
    source: ByteSource, name: str, data: Any, layout: Layout
) -> tuple[int, int, bool]:
    """Channels, samples, and whether the samples come first.

    Errors   RecordingError for an array that is no recording
    """
    whose, shape = f"its array {name!r}", tuple(map(int, data.shape))
    if not is_numbers(data):
        rule = "samples are int8 to int64 or float16 to float64"
        raise source.error(f"{whose} holds {data.dtype}", rule, "cast it before saving")
    if len(shape) not in (1, 2):
        raise source.error(
            f"{whose} has {len(shape)} axes, shape {list(shape)}",
            "1 axis (one channel) or 2 (channels, samples)",
            "reshape it, or save each part as an array",
        )
    check_array(source, data)
    _check_written(source, name, data)
    if len(shape) == 1:
        return 1, shape[0], False
    is_turned = layout == "samples-first"
    # A vector of MATLAB has two axes as well.
    if "MATLAB_class" in data.attrs and 1 in shape:
        is_turned = shape[1] == 1
    n_channels, n_samples = shape[::-1] if is_turned else shape
    other: Layout = "channels-first" if layout == "samples-first" else "samples-first"
    source.at_most(
        f"channels (shape {list(shape)} is read {layout})",
        n_channels,
        bounds.CHANNELS,
        Advice(f"is it {other}? then say so: {{}}", layout=other),
    )
    return n_channels, n_samples, is_turned


def _check_written(source: ByteSource, name: str, data: Any) -> None:
    """Warn of parts that were never written; refuse what consists of them.

    HDF5 gives the fill value for them and says nothing, so that a file of kilobytes
    could keep a machine busy for days.
    """
    if not prod(data.shape):
        return
    if data.chunks is None:
        is_there = data.id.get_storage_size() > 0
    else:
        pairs = zip(data.shape, data.chunks, strict=True)
        wanted = prod(-(-extent // chunk) for extent, chunk in pairs)
        is_there = data.id.get_num_chunks() >= wanted
    if is_there:
        return
    nbytes, stored = data.size * data.dtype.itemsize, data.id.get_storage_size()
    if nbytes > max(bounds.UNWRITTEN_NBYTES, bounds.DEFLATE_RATIO * stored):
        raise source.error(
            f"only {stored} of the {nbytes} bytes of its array {shown(name)} were "
            "written",
            f"of an array of more than {bounds.UNWRITTEN_NBYTES} bytes at least one in "
            f"{bounds.DEFLATE_RATIO} is there",
            "cut it to what was written (resize of h5py), or copy the file again",
        )
    source.warn(
        f"a part of its array {shown(name)} was never written; the fill value "
        f"{data.fillvalue} stands there"
    )


def _beside(source: ByteSource, group: Any, is_matlab: bool) -> dict[str, Any]:
    """Return what a group says: by its attributes, and by small arrays in it.

    Of MATLAB, numbers are arrays of one by one.
    """
    found = _plain(source, group)
    for name in group:
        own = name.lower()
        if own not in BESIDE or own in found:
            continue
        node = child(source, group, name)
        if not is_array(node):
            continue
        if is_matlab and not is_numbers(node):
            continue  # text there is numbers, and lists of text are references
        found[own] = _value(whole(source, node))
    return found


def _plain(source: ByteSource, node: Any) -> dict[str, Any]:
    """Return the attributes that mean something, by small letters, as Python's types.

    What has a type that h5py does not know is left out.
    """
    found = {}
    for name in list(node.attrs)[: bounds.ARRAYS]:
        if name.lower() not in _READ_ATTRIBUTES:
            continue
        try:
            found[name.lower()] = _value(attribute(source, node, name))
        except RlxError:
            raise
        except (OSError, TypeError, ValueError):
            continue
    return found


def _value(value: Any) -> Any:
    """A number, a text, or a list of them."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        flat = [_value(one) for one in value.ravel()[: bounds.CHANNELS + 1]]
        return flat[0] if value.ndim == 0 else flat
    return value.item() if isinstance(value, np.generic) else value


def _clock_beside(source: ByteSource, group: Any, n_samples: int) -> tuple[Clock, str]:
    """Return the clock of the array of times beside the samples, and its name."""
    for name in group:
        said = clock_name(name)
        node: Any = None if said is None else child(source, group, name)
        if said is None or not is_array(node) or node.size != n_samples:
            continue
        if not is_numbers(node):
            continue
        check_array(source, node)
        unit = _plain(source, node).get("units")
        # "seconds since 2000-01-01", as NetCDF writes it, is in seconds.
        scale = unit_scale(unit.partition(" ")[0]) if isinstance(unit, str) else None
        if scale is not None:
            said = ClockName(scale)
        times = Times(source, node)
        if said.is_letter and not runs_one_way(times, 0, n_samples):
            continue
        return find_rate(times, 0, said, n_samples), f"its array {name!r}"
    return Clock(), ""


class Times:
    """An array of times as the Rows of a clock; a walk unpacks each chunk once."""

    def __init__(self, source: ByteSource, data: Any) -> None:
        self._dtype, shape = data.dtype, data.shape
        is_turned = len(shape) == 2 and shape[1] == 1
        self._reader = ArrayReader(source, data, is_turned, prod(shape))

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """See SampleReader; in float64."""
        return np.asarray(self._reader.read((0,), start, stop), np.float64)

    def texts(self, rows: Sequence[int], column: int) -> list[str]:
        """See Rows: the shortest digits that say the number."""
        kind: Callable[[Any], Any] = partial(np.asarray, dtype=self._dtype)
        return [str(kind(self.read((0,), at, at + 1)[0, 0])[()]) for at in rows]


class ArrayReader:
    """Samples of an array of (channels, samples), of (samples, channels), or of one."""

    def __init__(
        self, source: ByteSource, data: Any, is_turned: bool, n_samples: int
    ) -> None:
        self._source, self._data, self._is_turned = source, data, is_turned
        self._chunks = Chunks(source, data)
        self._dtype = native(data.dtype)
        self._is_flat = len(data.shape) == 1
        axis = 0 if is_turned or self._is_flat else 1
        units = [] if data.chunks is None else [int(data.chunks[axis])]
        self._strips = Strips(self._taken, n_samples, units, self._dtype)

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Samples [start, stop) of the channels, (C, T)."""
        if self._source.file.closed:
            raise self._source.error("the recording is closed", hint="open it again")
        return self._strips.read(channels, start, stop)

    def _taken(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Samples [start, stop) as h5py gives them, which unpacks whole chunks."""
        span = slice(start, stop)
        with faults(self._source):
            if self._is_flat:
                self._chunks.check([span])
                found = self._data[span][None]
            else:
                which, order = rows_of(channels)
                rows = slice(min(channels), max(channels) + 1)
                spans = [span, rows] if self._is_turned else [rows, span]
                self._chunks.check(spans)
                found = (
                    self._data[span, which].T
                    if self._is_turned
                    else self._data[which, span]
                )
                found = found if order is None else found[order]
        return np.ascontiguousarray(found, self._dtype)
