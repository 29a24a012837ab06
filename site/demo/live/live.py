"""The Python of the live spectrum: a call per frame, a recording, the GPU's fate.

Runs in the Worker of a demo page, see worker.js. Each function that the page calls
takes (args, buffers) as they were sent.
"""

import os
from dataclasses import replace
from time import perf_counter

import numpy as np
from overview import columns_of

import rlxweb as rlx
from rlxweb.backends.pool import pool
from rlxweb.calibration.known import measure_now
from rlxweb.devices.place import parse_place
from rlxweb.errors import DeviceError, RecordingError, RlxError
from rlxweb.gpu.drive import can_block, drive
from rlxweb.io import check_finite, open_recording

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
MOST_NOTES = 10_000  # annotations that are handed to the page

open_file = None  # the recording in use
gpu_failed = ""  # why the GPU is not asked any more, until `reopen`


def frame(args, buffers):
    """Spectrum and peaks of the samples handed over, or of a stretch of the recording.

    Returns facts and arrays: power (C, F), Hz (C, k), power (C, k), peaks per row (C,),
    and where bands are asked for (C, K) each: power, share, Hz of the peak.
    """
    work = analysed(args, buffers)
    return drive(work) if can_block() else work


async def analysed(args, buffers):
    """`frame`, to be awaited or driven."""
    begun = perf_counter()
    x = stretch(args) if "start" in args else pushed(args, buffers)
    read = perf_counter()
    peaks, fallback = await on_some_device(x, args)
    found = perf_counter()
    power = await curve(x, args, peaks)
    facts = {
        "engine": peaks.engine,
        "device": peaks.device.label,
        "explain": peaks.explain(),
        "fallback": fallback,
        "candidates": [candidate(c) for c in peaks.decision.candidates],
        "shape": list(x.shape),
        "bins": power.shape[1],
        "step": args["fs"] / peaks.spec.nfft,
        "k": peaks.k,
        "ms": {
            "read": 1e3 * (read - begun),
            "peaks": 1e3 * (found - read),
            "curve": 1e3 * (perf_counter() - found),
        },
    }
    arrays = [power, peaks.hz, peaks.power, peaks.count.astype(np.int32)]
    if args["bands"]:
        told, more = banded(power, args)
        facts["bands"] = told
        arrays += more
    return facts, [np.ascontiguousarray(a) for a in arrays]


def banded(power, args):
    """Names and edges of the bands, or why there are none; and their arrays."""
    # Loaded when the first picture is there.
    from rlxweb.signal.bands import BANDS, band_power_of

    hz = np.arange(power.shape[1]) * args["fs"] / args["nperseg"]
    known = OCTAVES if args["bands"] == "octaves" else BANDS[args["bands"]]
    bands = {name: own for name, own in known.items() if own[1] <= hz[-1]}
    if not bands:
        low = min(own[1] for own in known.values())
        why = f"half the rate is {hz[-1]:g} Hz, and the first band ends at {low:g} Hz"
        return {"why": why}, []
    try:
        found = band_power_of(hz, power, bands)
    except RlxError as error:
        return {"why": f"{error.problem}, {error.rule}; choose a larger n_fft"}, []
    edges = zip(found.names, found.edges.tolist(), strict=True)
    told = [{"name": name, "from": low, "to": high} for name, (low, high) in edges]
    return {"bands": told}, [found.absolute, found.relative, found.peak_hz]


def pushed(args, buffers):
    """Samples the page gathered, float32 (C, T)."""
    return np.frombuffer(buffers[0], np.float32).reshape(args["shape"])


def stretch(args):
    """Samples [start, start + count) of some channels of the open recording.

    Integers as they are, for any device; other numbers as float32.
    """
    group = open_file.groups[args["group"]]
    chosen = tuple(group.channels[at] for at in args["channels"])
    some = replace(group, channels=chosen)
    try:
        x = some.read_stored(args["start"], args["start"] + args["count"])
    except RecordingError as error:
        error.hint = error.hint or "it may have changed since: choose it again"
        raise
    check_finite(x, some, args["start"])
    return x if isinstance(x, rlx.Digital) else x.astype(np.float32)


async def on_some_device(x, args):
    """The peaks, and why they are NumPy's where the GPU was to compute them."""
    global gpu_failed
    device = args["device"]
    if not gpu_failed or device == "cpu":
        try:
            return await found_peaks(x, args, device), ""
        except DeviceError as error:
            if device == "cpu":
                raise
            gpu_failed = error.problem
    peaks = await found_peaks(x, args, "cpu")
    why = f"fell back from the GPU, which failed: {gpu_failed}"
    return replace(peaks, decision=replace(peaks.decision, why=why)), gpu_failed


async def found_peaks(x, args, device):
    """The call this page is about."""
    step = args["fs"] / args["nperseg"]
    low, high = args["fmin"], min(args["fmax"], args["fs"] / 2)
    inside = int(high / step + 1e-9) - int(np.ceil(low / step - 1e-9)) + 1
    return await rlx.welch_peaks_async(
        x,
        fs=args["fs"],
        nperseg=args["nperseg"],
        k=max(1, min(args["k"], inside)),  # a narrow band has no more bins
        fmin=low,
        fmax=high,
        window=args["window"],
        preset="scipy",
        mode=args["mode"],
        device=None if device == "auto" else device,
        strict=True,  # the page itself tells of a loss, and what it did then
    )


async def curve(x, args, peaks):
    """The whole spectrum, by the engine of the peaks."""
    _, power = await rlx.welch_async(
        x,
        args["fs"],
        window=args["window"],
        nperseg=args["nperseg"],
        device=peaks.device,
    )
    return power


def candidate(one):
    """A way that was weighed, for the page's table."""
    return {
        "way": one.strategy
        if one.how in ("", "host")
        else f"{one.strategy}, {one.how}",
        "engine": one.engine,
        "ms": None if one.blocker or one.terms is None else one.predicted_ns / 1e6,
        "source": one.source,
        "blocker": one.blocker,
    }


# --- recordings -----------------------------------------------------------------------


def open_path(args, buffers):
    """Open a recording; {needs_rate} where the file does not tell its rate."""
    global open_file
    # Messages name a file as it was opened: without the folder it was put in.
    folder, name = os.path.split(args["path"])
    os.chdir(folder)
    try:
        opened = open_recording(name, fs=args["fs"], layout=args["layout"])
    except RecordingError as error:
        if error.problem == "its sampling rate is unknown":
            return {"needs_rate": error.rule}
        raise
    finally:
        os.chdir("/")
    close_path({}, [])
    open_file = opened
    return {
        "format": opened.format,
        "begun": opened.begun,
        "groups": [described(group) for group in opened.signals],
        "left_out": [list(one) for one in opened.left_out],
        "warnings": list(opened.warnings),
    }


def described(group):
    """A group of channels, for the page's controls."""
    return {
        "fs": group.fs,
        "samples": group.n_samples,
        "channels": [c.name for c in group.channels],
        "units": [c.unit for c in group.channels],
        "gaps": [list(gap) for gap in group.gaps],
    }


def annotations(args, buffers):
    """What is noted in the open recording: [onset, duration, text], and how many."""
    notes = open_file.annotations
    return {"count": len(notes), "notes": [list(one) for one in notes[:MOST_NOTES]]}


def overview(args, buffers):
    """Columns of the spectrogram of a channel, see overview.py."""
    group = open_file.groups[args["group"]]
    of = args["channel"], args["nperseg"], args["window"], args["first"]
    facts, power = columns_of(group, *of)
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
    pool.backend("webgpu").port._js.lose()


async def reopen(args, buffers):
    """Open the GPU again. {engine} or {why} it cannot be opened."""
    global gpu_failed
    pool.close_all()  # an adapter that was refused once is asked again
    row = await rlx.open_async("webgpu")
    gpu_failed = row.blocker
    return {"engine": row.engine, "why": row.blocker}


def measure(args, buffers):
    """Measure NumPy and the GPU, so that "auto" chooses by figures."""
    for label in args["devices"]:

        def say(step, label=label):
            post({"measuring": f"{label}: {step}"})  # noqa: F821  of worker.js

        measure_now(parse_place(label), budget_s=args["budget_s"], progress=say)
    forget_picks()


def forget_picks():
    """Let "auto" choose anew, now that more is known."""
    from rlxweb.choose.recent_picks import recent

    recent.forget()
