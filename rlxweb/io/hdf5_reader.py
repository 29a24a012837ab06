"""Read one array of an HDF5 file in slices; MATLAB 7.3 files are HDF5 too.

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

from rlxweb.core.adc_samples import is_digital_dtype
from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import RlxError, UnknownName, did_you_mean, not_installed, shown
from rlxweb.core.message_text import Advice, Blank
from rlxweb.io import file_limits
from rlxweb.io.byte_source import ByteSource
from rlxweb.io.byte_source_file_object import SourceFile
from rlxweb.io.chunked_array_reader import ChunkedReader, array_selection
from rlxweb.io.clock_column_names import ClockName, parse_clock_name, seconds_of_unit
from rlxweb.io.clock_column_rate import (
    ClockRate,
    find_rate,
    is_mostly_monotonic,
    reconcile_rates,
)
from rlxweb.io.format_reader_interface import (
    ArrayLayout,
    ChannelStream,
    FileChannel,
    FileContents,
    Samples,
    format_names,
)
from rlxweb.io.hdf5_checked_access import (
    ChunkChecker,
    check_array,
    check_matlab_tree,
    external_data_error,
    get_child,
    is_array,
    list_arrays,
    read_attribute,
    read_small_array,
)
from rlxweb.io.npy_reader import is_sample_dtype, native_dtype
from rlxweb.io.zarr_hdf5_attributes import METADATA_NAMES, read_recording_attributes

_INSTALL_HINT = "pip install 'rlxweb[hdf5]'"
_NON_NUMERIC_CLASSES: Final = ("char", "cell", "struct", "logical", "function_handle")
_EEGLAB_FIELDS: Final = {"nbchan", "srate"}
_KNOWN_ATTRIBUTES: Final = (*METADATA_NAMES, "scale_factor", "add_offset")


def read_hdf5(
    source: ByteSource, array: str | None, layout: ArrayLayout
) -> FileContents:
    """Read one array of an HDF5 file as a recording; of an NWB file, one of its series.

    Errors   RecordingError for a broken file, what is no recording, and where several
             arrays could be meant; UnknownName when `array` is not in it; Unsupported
             where h5py is missing
    """
    file = _open_file(source)
    source.close_callbacks.append(file.close)
    with translate_h5py_errors(source):
        is_nwb = "nwb_version" in file.attrs
        eeg_group = get_child(source, file, "EEG")
        eeg_group = file if eeg_group is None else eeg_group
        is_eeglab = hasattr(eeg_group, "keys") and {*eeg_group} >= _EEGLAB_FIELDS
    if is_eeglab:
        from rlxweb.io.mne_reader import read_with_mne

        return read_with_mne(source, "EEGLAB")
    if is_nwb:
        from rlxweb.io.nwb_reader import read_nwb

        return read_nwb(source, file, array)
    with translate_h5py_errors(source):
        return _read_array(source, file, array, layout)


def check_eeglab_hdf5(source: ByteSource) -> list[str]:
    """Check an EEGLAB set stored as HDF5 and return the names of its sample files.

    Raises
    ------
    RecordingError
        For links to other files, and for arrays that claim more than the file may.
    """
    file = _open_file(source)
    names = []
    try:
        with translate_h5py_errors(source):
            check_matlab_tree(source, file, _object_address)
            eeg_group = get_child(source, file, "EEG")
            for group in (file, eeg_group):
                data = (
                    get_child(source, group, "data") if hasattr(group, "keys") else None
                )
                if not is_array(data):
                    continue
                if read_attribute(source, data, "MATLAB_class") in (b"char", "char"):
                    codes = read_small_array(source, data).ravel()
                    names.append("".join(map(chr, codes.astype(int).tolist())))
    finally:
        file.close()
    return names


def _object_address(node: Any) -> int:
    """Return the address of an array or group in its file."""
    import h5py

    address: int = h5py.h5o.get_info(node.id).addr
    return address


def _open_file(source: ByteSource) -> Any:
    """Open a source with h5py."""
    try:
        import h5py
    except ImportError as error:
        raise not_installed(source.context, "h5py", _INSTALL_HINT) from error
    with translate_h5py_errors(source):
        file = h5py.File(SourceFile(source), "r")
    _open_files[id(file)] = file
    return file


# HDF5 closes what is open when the process ends, and would then ask a file object of
# Python for it, which ends the process by a signal.
_open_files: WeakValueDictionary[int, Any] = WeakValueDictionary()


@atexit.register
def _close_open_files() -> None:
    """Close all open files before the HDF5 library shuts down."""
    for file in list(_open_files.values()):
        file.close()


@contextmanager
def translate_h5py_errors(source: ByteSource) -> Iterator[None]:
    """Turn whatever h5py raises over a file into a RecordingError."""
    try:
        yield
    except RlxError:
        raise
    except Exception as error:
        raise source.error(
            f"h5py cannot read the file ({error_reason(error)})",
            hint="copy the file again from its source, or write it again",
        ) from error


def _read_array(
    source: ByteSource, file: Any, array: str | None, layout: ArrayLayout
) -> FileContents:
    """Read the selected array, with its attributes and its clock, as a recording."""
    arrays, virtual = list_arrays(source, file)
    candidates = [name for name in arrays if _is_candidate(name, arrays)]
    name = select_array(source, arrays, array, candidates, virtual)
    for virtual_name in virtual if array is None else ():
        source.warn(
            f"{external_data_error(source, virtual_name).problem}; the array is ignored"
        )
    data = arrays[name]
    is_matlab = "MATLAB_class" in data.attrs
    stored_layout: ArrayLayout = layout
    if is_matlab:  # which writes an array with its axes turned about
        stored_layout = (
            "samples-first" if layout == "channels-first" else "channels-first"
        )
    n_channels, n_samples, is_samples_first = array_orientation(
        source, name, data, stored_layout
    )
    sibling_values = _sibling_values(source, data.parent, is_matlab)
    metadata = read_recording_attributes(
        source,
        [_known_attributes(source, data), sibling_values],
        n_channels,
        is_digital_dtype(native_dtype(data.dtype)),
    )
    clock, clock_source = _sibling_clock(source, data.parent, n_samples)
    fs, tolerance, timing = reconcile_rates(
        source, metadata.fs, "the attributes", clock, clock_source
    )
    stored_dtype = native_dtype(data.dtype)
    stream = ChannelStream(
        tuple(range(n_channels)),
        fs,
        n_samples,
        np.dtype(np.float64) if metadata.is_scaled else stored_dtype,
        Hdf5ArrayReader(source, data, is_samples_first, n_samples),
        tolerance,
        digital=stored_dtype if is_digital_dtype(stored_dtype) else None,
        uncertain_timing=timing,
    )
    channels = tuple(
        FileChannel(label, unit, gain=metadata.gain, offset=metadata.offset)
        for label, unit in zip(metadata.channels, metadata.units, strict=True)
    )
    return FileContents(
        "MATLAB" if is_matlab else "HDF5", channels, (stream,), metadata.rate_note
    )


def select_array(
    source: ByteSource,
    arrays: Mapping[str, Any],
    array: str | None,
    candidates: Sequence[str],
    virtual: Sequence[str],
) -> str:
    """Return the name of the array that is the recording: the requested or the only
    possible one.

    A virtual array is refused where it is asked for, or alone there.

    Raises
    ------
    UnknownName
        For a name that is not there.
    RecordingError
        Where none could be, or several.
    """
    name = "" if array is None else array.strip("/")
    requested_virtual = [
        virtual_name
        for virtual_name in virtual
        if virtual_name.removesuffix("/data") == name
    ]
    if requested_virtual or (virtual and array is None and not candidates):
        raise external_data_error(source, [*requested_virtual, *virtual][0])
    if array is not None:
        if name in arrays:
            return name
        raise UnknownName(
            source.context,
            f"no array is named {array!r}",
            f"available arrays: {format_names(candidates or arrays)}",
            did_you_mean(name, arrays),
        )
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise source.error(
            "the file contains no array suitable as a recording",
            "expected an array of numbers with 1 or 2 axes (arrays in the file: "
            f"{format_names(arrays)})",
        )
    raise source.error(
        f"{len(candidates)} arrays are possible recordings: {format_names(candidates)}",
        "only one array can be read at a time",
        Advice("pass {}", array=Blank("NAME")),
    )


def _is_candidate(name: str, arrays: Mapping[str, Any]) -> bool:
    """Return whether an array could be the recording."""
    base_name, data = name.rpartition("/")[2].lower(), arrays[name]
    is_metadata = base_name in METADATA_NAMES or parse_clock_name(base_name) is not None
    return (
        not is_metadata
        and is_numeric(data)
        and len(data.shape) in (1, 2)
        and prod(data.shape) > 1
    )


def is_numeric(data: Any) -> bool:
    """Return whether an array holds numbers that can be samples."""
    if not is_sample_dtype(data.dtype):
        return False
    raw_class = data.attrs.get("MATLAB_class", b"")
    matlab_class = (
        raw_class.decode("latin-1") if isinstance(raw_class, bytes) else str(raw_class)
    )
    return matlab_class not in _NON_NUMERIC_CLASSES


def array_orientation(
    source: ByteSource, name: str, data: Any, layout: ArrayLayout
) -> tuple[int, int, bool]:
    """Return the numbers of channels and samples, and whether the samples axis comes
    first.

    Errors   RecordingError for an array that is no recording
    """
    label, shape = f"array {name!r}", tuple(map(int, data.shape))
    if not is_numeric(data):
        rule = "samples must be int8 to int64 or float16 to float64"
        raise source.error(
            f"{label} has dtype {data.dtype}", rule, "cast the array before saving"
        )
    if len(shape) not in (1, 2):
        raise source.error(
            f"{label} has {len(shape)} axes, shape {list(shape)}",
            "expected 1 axis (one channel) or 2 (channels, samples)",
            "reshape the array, or save each part as a separate array",
        )
    check_array(source, data)
    _check_allocation(source, name, data)
    if len(shape) == 1:
        return 1, shape[0], False
    is_samples_first = layout == "samples-first"
    # A vector of MATLAB has two axes as well.
    if "MATLAB_class" in data.attrs and 1 in shape:
        is_samples_first = shape[1] == 1
    n_channels, n_samples = shape[::-1] if is_samples_first else shape
    other_layout: ArrayLayout = (
        "channels-first" if layout == "samples-first" else "samples-first"
    )
    source.check_limit(
        f"channels (shape {list(shape)} is read as {layout})",
        n_channels,
        file_limits.CHANNELS,
        Advice(f"if the array is {other_layout}, pass {{}}", layout=other_layout),
    )
    return n_channels, n_samples, is_samples_first


def _check_allocation(source: ByteSource, name: str, data: Any) -> None:
    """Warn of chunks that were never written; refuse an array that consists mostly of
    them.

    HDF5 gives the fill value for them and says nothing, so that a file of kilobytes
    could keep a machine busy for days.
    """
    if not prod(data.shape):
        return
    if data.chunks is None:
        is_complete = data.id.get_storage_size() > 0
    else:
        pairs = zip(data.shape, data.chunks, strict=True)
        n_chunks = prod(-(-extent // chunk) for extent, chunk in pairs)
        is_complete = data.id.get_num_chunks() >= n_chunks
    if is_complete:
        return
    nbytes, stored = data.size * data.dtype.itemsize, data.id.get_storage_size()
    if nbytes > max(
        file_limits.HDF5_UNWRITTEN_NBYTES, file_limits.DEFLATE_RATIO * stored
    ):
        raise source.error(
            f"only {stored} of {nbytes} bytes of array {shown(name)} were written",
            f"in an array of more than {file_limits.HDF5_UNWRITTEN_NBYTES} bytes, at "
            f"least 1 in {file_limits.DEFLATE_RATIO} bytes must be written",
            "resize the array to the written part (h5py resize), or copy the file "
            "again",
        )
    source.warn(
        f"part of array {shown(name)} was never written; this part is read as the "
        f"fill value {data.fillvalue}"
    )


def _sibling_values(source: ByteSource, group: Any, is_matlab: bool) -> dict[str, Any]:
    """Return a group's metadata, from its attributes and from small arrays in it.

    Of MATLAB, numbers are arrays of one by one.
    """
    values = _known_attributes(source, group)
    for name in group:
        key = name.lower()
        if key not in METADATA_NAMES or key in values:
            continue
        node = get_child(source, group, name)
        if not is_array(node):
            continue
        if is_matlab and not is_numeric(node):
            continue  # text there is numbers, and lists of text are references
        values[key] = _to_python(read_small_array(source, node))
    return values


def _known_attributes(source: ByteSource, node: Any) -> dict[str, Any]:
    """Return the attributes with a known name, by lowercase name, as Python values.

    What has a type that h5py does not know is left out.
    """
    attributes = {}
    for name in list(node.attrs)[: file_limits.ARRAYS]:
        if name.lower() not in _KNOWN_ATTRIBUTES:
            continue
        try:
            attributes[name.lower()] = _to_python(read_attribute(source, node, name))
        except RlxError:
            raise
        except (OSError, TypeError, ValueError):
            continue
    return attributes


def _to_python(value: Any) -> Any:
    """Convert an attribute to a number, a text, or a list of them."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        elements = [
            _to_python(element) for element in value.ravel()[: file_limits.CHANNELS + 1]
        ]
        return elements[0] if value.ndim == 0 else elements
    return value.item() if isinstance(value, np.generic) else value


def _sibling_clock(
    source: ByteSource, group: Any, n_samples: int
) -> tuple[ClockRate, str]:
    """Return the clock of an array of times beside the samples, and that array's
    name.
    """
    for name in group:
        parsed_name = parse_clock_name(name)
        node: Any = None if parsed_name is None else get_child(source, group, name)
        if parsed_name is None or not is_array(node) or node.size != n_samples:
            continue
        if not is_numeric(node):
            continue
        check_array(source, node)
        unit = _known_attributes(source, node).get("units")
        # "seconds since 2000-01-01", as NetCDF writes it, is in seconds.
        scale = (
            seconds_of_unit(unit.partition(" ")[0]) if isinstance(unit, str) else None
        )
        if scale is not None:
            parsed_name = ClockName(scale)
        times = Hdf5Times(source, node)
        if parsed_name.is_letter and not is_mostly_monotonic(times, 0, n_samples):
            continue
        return find_rate(times, 0, parsed_name, n_samples), f"array {name!r}"
    return ClockRate(), ""


class Hdf5Times:
    """Array of times as the rows of a clock; sequential reads unpack each chunk
    once.
    """

    def __init__(self, source: ByteSource, data: Any) -> None:
        self._dtype, shape = data.dtype, data.shape
        is_samples_first = len(shape) == 2 and shape[1] == 1
        self._reader = Hdf5ArrayReader(source, data, is_samples_first, prod(shape))

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Return times as float64; see SampleReader."""
        return np.asarray(self._reader.read((0,), start, stop), np.float64)

    def texts(self, rows: Sequence[int], column: int) -> list[str]:
        """Return times as the shortest texts that identify the numbers."""
        to_dtype: Callable[[Any], Any] = partial(np.asarray, dtype=self._dtype)
        return [str(to_dtype(self.read((0,), row, row + 1)[0, 0])[()]) for row in rows]


class Hdf5ArrayReader:
    """Reader of the samples of an HDF5 array with one axis, or with channels and
    samples in either order.
    """

    def __init__(
        self, source: ByteSource, data: Any, is_samples_first: bool, n_samples: int
    ) -> None:
        self._source, self._data, self._is_samples_first = (
            source,
            data,
            is_samples_first,
        )
        self._chunks = ChunkChecker(source, data)
        self._dtype = native_dtype(data.dtype)
        self._is_flat = len(data.shape) == 1
        axis = 0 if is_samples_first or self._is_flat else 1
        units = [] if data.chunks is None else [int(data.chunks[axis])]
        self._strips = ChunkedReader(self._read_slice, n_samples, units, self._dtype)

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Return samples [start, stop) of the channels, (C, T)."""
        if self._source.file.closed:
            raise self._source.error(
                "the recording is closed", hint="open the recording again"
            )
        return self._strips.read(channels, start, stop)

    def _read_slice(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Return samples [start, stop) as h5py reads them, which unpacks whole
        chunks.
        """
        span = slice(start, stop)
        with translate_h5py_errors(self._source):
            if self._is_flat:
                self._chunks.check([span])
                samples = self._data[span][None]
            else:
                row_index, order = array_selection(channels)
                rows = slice(min(channels), max(channels) + 1)
                spans = [span, rows] if self._is_samples_first else [rows, span]
                self._chunks.check(spans)
                samples = (
                    self._data[span, row_index].T
                    if self._is_samples_first
                    else self._data[row_index, span]
                )
                samples = samples if order is None else samples[order]
        return np.ascontiguousarray(samples, self._dtype)
