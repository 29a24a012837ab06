"""Python side of the live spectrum: a call per frame, a recording, loss of the GPU.

Runs in the Worker of a demo page, see worker.js. Each function that the page calls
takes (args, buffers) as they were sent.
"""

import os
from dataclasses import replace
from time import perf_counter

import numpy as np
from overview import columns_of

import rlxweb as rlx
from rlxweb.engines.pool import pool
from rlxweb.errors import DeviceError, RecordingError, RlxError
from rlxweb.gpu.coroutine_runner import can_block, run_blocking
from rlxweb.io import check_finite, open_recording
from rlxweb.select.calibration.engine_calibration_lookup import measure_now
from rlxweb.select.device_and_adapter import parse_place

# Measuring takes seconds; here it is done when the visitor asks, never between frames.
os.environ["RLX_CALIBRATION"] = "off"

# Octaves around 1 kHz, by the names of their middles (IEC 61260).
OCTAVES = {
    name: (1000 * 2 ** (n - 0.5), 1000 * 2 ** (n + 0.5))
    for n, name in zip(
        range(-3, 4),
        ("125 Hz", "250 Hz", "500 Hz", "1 kHz", "2 kHz", "4 kHz", "8 kHz"),
        strict=True,
    )
}
MAX_ANNOTATIONS = 10_000  # annotations that are handed to the page

open_file = None  # the recording in use
gpu_failed = ""  # why the GPU is not asked any more, until `reopen`


def frame(args, buffers):
    """Return spectrum and peaks of the samples passed in, or of an interval of the
    recording.

    Returns facts and arrays: power (C, F), Hz (C, k), power (C, k), peaks per row (C,),
    and where bands are asked for (C, K) each: power, share, Hz of the peak.
    """
    coroutine = analyse_frame(args, buffers)
    return run_blocking(coroutine) if can_block() else coroutine


async def analyse_frame(args, buffers):
    """Compute a frame; the coroutine is awaited or driven by `frame`."""
    started = perf_counter()
    x = read_interval(args) if "start" in args else pushed_samples(args, buffers)
    read_done = perf_counter()
    peaks, fallback = await peaks_with_fallback(x, args)
    peaks_done = perf_counter()
    power = await compute_spectrum(x, args, peaks)
    facts = {
        "engine": peaks.engine,
        "device": peaks.device.label,
        "explain": peaks.explain(),
        "fallback": fallback,
        "candidates": [candidate_as_json(c) for c in peaks.decision.candidates],
        "shape": list(x.shape),
        "bins": power.shape[1],
        "step": args["fs"] / peaks.spec.nfft,
        "k": peaks.k,
        "ms": {
            "read": 1e3 * (read_done - started),
            "peaks": 1e3 * (peaks_done - read_done),
            "curve": 1e3 * (perf_counter() - peaks_done),
        },
    }
    arrays = [power, peaks.hz, peaks.power, peaks.count.astype(np.int32)]
    if args["bands"]:
        band_facts, band_arrays = compute_bands(power, args)
        facts["bands"] = band_facts
        arrays += band_arrays
    return facts, [np.ascontiguousarray(a) for a in arrays]


def compute_bands(power, args):
    """Return the bands' names and edges, or the reason there are none, and their
    arrays.
    """
    # Loaded when the first picture is there.
    from rlxweb.signal.band_power import BAND_PRESETS, band_power_of

    hz = np.arange(power.shape[1]) * args["fs"] / args["nperseg"]
    all_bands = OCTAVES if args["bands"] == "octaves" else BAND_PRESETS[args["bands"]]
    bands = {name: limits for name, limits in all_bands.items() if limits[1] <= hz[-1]}
    if not bands:
        low = min(limits[1] for limits in all_bands.values())
        reason = (
            f"half the sampling rate is {hz[-1]:g} Hz, below the end of the first "
            f"band, {low:g} Hz"
        )
        return {"why": reason}, []
    try:
        band_power = band_power_of(hz, power, bands)
    except RlxError as error:
        return {"why": f"{error.problem}, {error.rule}; choose a larger n_fft"}, []
    edges = zip(band_power.names, band_power.edges.tolist(), strict=True)
    entries = [{"name": name, "from": low, "to": high} for name, (low, high) in edges]
    return {"bands": entries}, [
        band_power.absolute,
        band_power.relative,
        band_power.peak_hz,
    ]


def pushed_samples(args, buffers):
    """Return the samples that the page gathered, float32 (C, T)."""
    return np.frombuffer(buffers[0], np.float32).reshape(args["shape"])


def read_interval(args):
    """Read samples [start, start + count) of some channels of the open recording.

    Integers as they are, for any device; other numbers as float32.
    """
    group = open_file.groups[args["group"]]
    channels = tuple(group.channels[at] for at in args["channels"])
    selection = replace(group, channels=channels)
    try:
        x = selection.read_stored(args["start"], args["start"] + args["count"])
    except RecordingError as error:
        error.hint = error.hint or "choose the file again, as it may have changed"
        raise
    check_finite(x, selection, args["start"])
    return x if isinstance(x, rlx.Digital) else x.astype(np.float32)


async def peaks_with_fallback(x, args):
    """Return the peaks, and why NumPy computed them where the GPU was chosen."""
    global gpu_failed
    device = args["device"]
    if not gpu_failed or device == "cpu":
        try:
            return await compute_peaks(x, args, device), ""
        except DeviceError as error:
            if device == "cpu":
                raise
            gpu_failed = error.problem
    peaks = await compute_peaks(x, args, "cpu")
    reason = f"computed by NumPy because the GPU failed: {gpu_failed}"
    return replace(peaks, decision=replace(peaks.decision, why=reason)), gpu_failed


async def compute_peaks(x, args, device):
    """Compute the Welch peaks on a device."""
    step = args["fs"] / args["nperseg"]
    low, high = args["fmin"], min(args["fmax"], args["fs"] / 2)
    bins_in_band = int(high / step + 1e-9) - int(np.ceil(low / step - 1e-9)) + 1
    return await rlx.welch_peaks_async(
        x,
        fs=args["fs"],
        nperseg=args["nperseg"],
        k=max(1, min(args["k"], bins_in_band)),  # a narrow band has no more bins
        fmin=low,
        fmax=high,
        window=args["window"],
        preset="scipy",
        mode=args["mode"],
        device=None if device == "auto" else device,
        strict=True,  # the page itself tells of a loss, and what it did then
    )


async def compute_spectrum(x, args, peaks):
    """Compute the whole spectrum on the engine of the peaks."""
    _, power = await rlx.welch_async(
        x,
        args["fs"],
        window=args["window"],
        nperseg=args["nperseg"],
        device=peaks.device,
    )
    return power


def candidate_as_json(candidate):
    """Describe a candidate of the decision for the page's table."""
    return {
        "way": candidate.strategy
        if candidate.how in ("", "host")
        else f"{candidate.strategy}, {candidate.how}",
        "engine": candidate.engine,
        "ms": None
        if candidate.blocker or candidate.terms is None
        else candidate.predicted_ns / 1e6,
        "source": candidate.source,
        "blocker": candidate.blocker,
    }


# --- recordings -----------------------------------------------------------------------


def open_path(args, buffers):
    """Open a recording; return {needs_rate} if the file does not state its rate."""
    global open_file
    # Messages name a file as it was opened: without the folder it was put in.
    folder, name = os.path.split(args["path"])
    os.chdir(folder)
    try:
        opened = open_recording(name, fs=args["fs"], layout=args["layout"])
    except RecordingError as error:
        if error.problem == "the sampling rate is unknown":
            return {"needs_rate": error.rule}
        raise
    finally:
        os.chdir("/")
    close_path({}, [])
    open_file = opened
    return {
        "format": opened.format,
        "begun": opened.begun,
        "groups": [group_as_json(group) for group in opened.signals],
        "left_out": [list(item) for item in opened.left_out],
        "warnings": list(opened.warnings),
    }


def group_as_json(group):
    """Describe a group of channels for the page's controls."""
    return {
        "fs": group.fs,
        "samples": group.n_samples,
        "channels": [c.name for c in group.channels],
        "units": [c.unit for c in group.channels],
        "gaps": [list(gap) for gap in group.gaps],
    }


def annotations(args, buffers):
    """Return the annotations of the open recording as [onset, duration, text], and
    their number.
    """
    notes = open_file.annotations
    return {
        "count": len(notes),
        "notes": [list(note) for note in notes[:MAX_ANNOTATIONS]],
    }


def overview(args, buffers):
    """Return columns of the spectrogram of a channel, see overview.py."""
    group = open_file.groups[args["group"]]
    settings = args["channel"], args["nperseg"], args["window"], args["first"]
    facts, power = columns_of(group, *settings)
    return facts, [power]


def close_path(args, buffers):
    """Close the recording, if there is one."""
    global open_file
    if open_file is not None:
        open_file.close()
    open_file = None


# --- the GPU --------------------------------------------------------------------------


def lose(args, buffers):
    """Destroy the GPU device, as a driver that goes away would."""
    pool.engine("webgpu").port._js.lose()


async def reopen(args, buffers):
    """Open the GPU again; return {engine}, or {why} it cannot be opened."""
    global gpu_failed
    pool.close_all()  # an adapter that was refused once is asked again
    row = await rlx.open_async("webgpu")
    gpu_failed = row.blocker
    return {"engine": row.engine, "why": row.blocker}


def measure(args, buffers):
    """Measure NumPy and the GPU, so that "auto" chooses by figures."""
    for label in args["devices"]:

        def post_progress(step, label=label):
            post({"measuring": f"{label}: {step}"})  # noqa: F821  of worker.js

        measure_now(
            parse_place(label), budget_s=args["budget_s"], progress=post_progress
        )
    clear_picks()


def clear_picks():
    """Clear the cached picks, so that "auto" chooses again with the new
    measurements.
    """
    from rlxweb.select.device_pick_cache import recent_picks

    recent_picks.clear()
