"""Wrong input of every command: a command line, and what one line on stderr says.

Each runs in a folder with copies of the files that it names, and leaves them and the
folder as they were. What needs a patched program or several calls is in the file of
its command.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from rlxweb.cli.main import COMMANDS
from rlxweb.cli.options import FiniteFloatRange
from tests.cli_runners import CommandRunner, check_rejected, matches

STIM = "--epochs stim* --tmin -0.2 --tmax 0.8"
EXPORT_WELCH = "export welch out --rows 4 --samples 512 --fs 128"
QUICK_LEARN = (
    "--n-fft 64 --band 32:200 --k 3 --error 0.05 --steps 6 --preset scipy --device cpu"
)
UNTRAINED = f"{QUICK_LEARN} --steps 0 --out m.rlxl"
EXPLAIN = {
    "x.npy --fs 9 --batch 4": "--batch: it cannot be combined with FILE, which "
    "determines the number of rows",
    "--fs 9": "--fs: it requires a FILE",
    "-c Cz": "--channels: it requires a FILE",
    "gone.npy --fs 9": "'gone.npy': the file does not exist",
    ". --fs 9": "'.': expected a file, got a folder",
    "x.npy x.npy": "unexpected extra argument (x.npy)",
    "x.npy": "the sampling rate is unknown … pass --fs HZ",
    "x.npy --fs 9 --n-fft 4096": "nperseg is 4096; must be at most the length of the "
    "signal, 1000 samples",
    "x.npy --fs 9 --segments 7": "nsegments is 7; 1000 samples contain 6 segments of "
    "256 samples with a hop of 128",
    # The flags of `rlxweb welch` that its errors name are its own, too.
    "x.npy --fs 100 --segments 99": "fewer segments or leave out --nsegments 99",
    "x.npy --fs 100 --k 999": "request fewer peaks, or use a larger --nperseg N",
    "x.npy --fs 250 --nperseg 20 --k 16": "k is 16 … 1 to 11",
    "x.npy --fs 250 --nperseg 2 --k 1": "the window is 0 at all 2 of its samples",
    "--n-fft 8 --k 6": "k is 6; must be 1 to 5, the number of bins",
    "--segments 3 --min-segments 4": "min_segments is 4; must be 1 to 3, the number of "
    "averaged segments",
    "x.npy --fs 9 --min-segments 1": "--min-segments: it cannot be combined with FILE",
    "--fast": "no such option '--fast'",
    "--cost-mode guess": "'guess' is not one of",
    "--device abacus": "unknown device 'abacus'",
    "--batch 0": "0 is not in the range",
    "--batch -3": "-3 is not in the range",
    "--batch 1.5": "'1.5' is not a valid integer",
    "--n-fft 0": "0 is not in the range",
    "--k 0": "k is 0; must be 1 to 129, the number of bins",
    "--segments 0": "0 is not in the range",
    "--min-segments 0": "0 is not in the range",
    f"--n-fft {10**12}": f"{10**12} is not in the range",
    f"--batch {10**400}": "is not in the range",
    f"--segments {10**400}": "is not in the range",
}
"""Options of `explain`, with JSON and without → error."""
REFUSALS: dict[str, dict[str, str]] = {
    "": {
        "wlech": "did you mean 'welch'",
        "xyz": "known commands: welch, bands",
        "devices --jsn 1": "no such option '--jsn'; did you mean --json?; see",
    },
    "welch": {
        "": "rlxweb: FILE… is missing; see rlxweb welch --help",
        "--fs": "rlxweb: option '--fs' requires an argument; see rlxweb welch -",
        "--nfft 1": "no such option '--nfft'; did you mean --nperseg?; see",
        "--N_FFT 1": "no such option '--N_FFT'; did you mean --nperseg?; see",
        "--sfreq 1": "no such option '--sfreq'; did you mean --fs?; see",
        "--freq-max 1": "no such option '--freq-max'; did you mean --fmax?; see",
        "--fmaxx 1": "no such option '--fmaxx'; did you mean --fmax?; see",
        "--picks 1": "no such option '--picks'; did you mean --channels?; see",
        "--skip-errors 1": "no such option '--skip-errors'; did you mean "
        "--keep-going?; see",
        "--precission 1": "no such option '--precission'; did you mean --precision?; "
        "see",
        "--output 1": "no such option '--output'; did you mean --out or --csv or "
        "--npz or --json or --plot?; see",
        "empty --fs 100": "empty … it contains no recordings … found 0 files of other "
        "kinds",
        "texts --fs 100": "it contains no recordings … found 1 file of other kinds … "
        ".edf",
        "above --fs 100": "it contains no recordings … 1 folder … use "
        "'above/**/*.edf' to include subfolders",
        "'night/*.edf' --fs 100": "'night/*.edf' … no file matches",
        "'nowhere/*.edf' --fs 100": "'nowhere/*.edf' … no file matches",
        "nowhere --fs 100": "'nowhere' … the file does not exist",
        "x.wav --fs 99": "got --fs 99",
        "x.wav --layout samples-first": "--layout samples-first is not supported",
        "loud.npz --array x": "loud.npz … the power of channel 'Cz'",
        "x.npy --fs 250 --nperseg 20 --k 16": "k is 16 … 1 to 11",
        "x.npy --fs 250 --nperseg 2 --k 1": "the window is 0 at all 2 of its samples",
    },
    "welch events.edf": {
        "--epochs Foo --tmax 1": "available annotations: 'Stim left', 'Stim",
        "--epochs Stim*": "end of the epochs is missing; add --tmax S",
        "--epochs ' ' --tmax 1": "the annotation text is empty",
        "--keep-bad": "--keep-bad: it requires --epochs",
        "--epochs Stim* --tmin 1 --tmax 1": "than tmin, which is 1 s",
        "--epochs Stim* --tmax 90": "none of 22 epochs remains: 22 outside the",
    },
    f"welch zeros.npy --fs 100 {STIM}": {
        "": "no annotation matches 'stim*'; the recording has no annotations",
    },
    f"welch events.edf {STIM}": {
        "--nperseg 256": "has 256 samples (1.28 s); an epoch",
        "--reject 1": "2 outside the recording, 20 above the peak-to-peak limit",
        "--reject 0": "0.0 is not in the range",
    },
    # The error names the file among many and suggests flags, not Python keywords.
    "welch night/a.npy night/b.npy --fs 100": {
        "--nsegments 99": "'night/a.npy' … leave out --nsegments 99",
        "--k 999": "'night/a.npy' … use a larger --nperseg N",
        "--window kaiser": "'night/a.npy' … pass its parameters: --window kaiser,…",
        "--prominence 3": "'night/a.npy' … --prominence 3.0 does not apply to --mode "
        "bins",
    },
    "welch x.npz": {
        "--jobs 0": "expected an integer above 0, or auto; got '0'",
        "--jobs many": "or auto; got 'many'",
        "--jobs 2 --workers 2": "the options cannot be combined",
        "--jobs 2 --dask tcp://a:1": "--jobs and --dask: the options",
    },
    "welch x.npy --fs 100": {
        "--window kaiser,x": "'--window' … 'x' is not a number … kaiser,8.6",
        "--fmin 30 --fmax 20": "fmin is 30 Hz … at most fmax, 20 Hz",
        "--fmin nan": "fmin is nan; it must be finite",
        "--fmin 51": "there is no bin at or above 51 Hz … end at 50 Hz",
        "--fmin 10.2 --fmax 10.5": "0.390625 Hz apart … --nperseg N",
        "--fmin ten": "'--fmin': 'ten' is not a valid float",
        "--resume": "--resume: … it requires an output file … --out, --csv",
        "--no-resume --csv -": "--no-resume: … with a file name",
    },
    "explain": {
        "--nfft 1": "no such option '--nfft'; did you mean --n-fft or --nperseg?; see",
        "x.npy --prominence 3": "no such option '--prominence'; it is an option of "
        "`rlxweb welch`; see rlxweb explain --help",
        "x.npy --prominense 3": "no such option '--prominense'; see",
        "--file x.npy": "no such option '--file'; see",
    },
    f"explain --batch {10**9} --device cpu --measure": {
        "": "--measure: the rows need 4.29e+03 GiB; at most 1.5 GiB",
    },
    **dict.fromkeys(("explain --device cpu", "explain --device cpu --json"), EXPLAIN),
    "bands events.edf": {
        "--tmin 1": "--tmin: it requires --epochs",
        "--by text": "--by: it requires --epochs",
    },
    f"bands events.edf {STIM}": {
        "--segment-s 2": "200 Hz has 200 samples (1 s); use a smaller --",
    },
    "bands x.npy --fs 200": {
        "--bands ecg": "expected eeg, hrv, or custom bands such as "
        "mu=8:12,beta=13:30; got 'ecg'",
        "--bands mu=8": "'mu=8' is not a band",
        "--bands mu=12:8": "band 'mu' is 12:8",
        "--bands mu=80:120": "ends at 120 Hz; half the sampling rate is 100 Hz",
        "--bands mu=120:140": "ends at 140 Hz; half the sampling rate is 100 Hz",
        "--parquet x.csv": "must end in .parquet",
        "--plot x.gif": "the suffix is '.gif'",
        "--segment-s 0": "0.0 is not in the range",
        "--segment-s nan": "'--segment-s': nan is not finite",
        "--ratios theta": "'theta' is not a ratio; expected two bands",
        "--ratios theta/bet": "there is no band 'bet'",
        "--fit 2:40": "a fit of the 1/f part; add --aperiodic or --knee",
        "--aperiodic --fit 40:2": "'40:2' is not a range",
        "--aperiodic --fit 200:300": "300 Hz; half the sampling rate is 100 Hz",
        "--aperiodic --fit 10:11": "the band contains 5 bins above 0 Hz; at least 8",
        "--aperiodic --bands hrv": "the bands end at 0.4 Hz; the fit starts at 1 Hz",
    },
    "spectrogram": {
        "gap.npy --fs 200": "channel 'ch3' is nan at sample 100",
    },
    "spectrogram events.edf": {
        "--reject 9": "--reject: it requires --epochs",
        "--baseline 0:1": "--baseline: it requires --epochs",
    },
    f"spectrogram events.edf {STIM}": {
        "--baseline 0": "'0' is not a range",
        "--baseline 2:3": "no segment is centered",
        "--segment-s 2": "an epoch at 200 Hz has 200 samples (1",
    },
    "spectrogram x.npy --fs 200": {
        "--overlap 1": "1.0 is not in the range",
        "--overlap nan": "'--overlap': nan is not finite",
        "--segment-s inf": "'--segment-s': inf is not finite",
        "--fmin 300": "there is no bin at or above 300 Hz",
        "--columns 0": "0 is not in the range",
        "--plot x.gif": "the suffix is '.gif'",
        "-c chX": "no channel is named 'chX'",
    },
    "info": {
        "x.npy": "pass --fs HZ",
        "night.edf --csv night.edf": "the file is also the recording 'night.edf'",
        "no.edf": "'no.edf': the file does not exist",
        "bad.edf night.edf": "'bad.edf': the EDF header is truncated",
    },
    "convert": {
        "nan.npz --to bdf -o -": "rlxweb: writing '-': reading 'nan.npz': channel "
        "'ch1' is nan",
        "psg.edf --to npz -o -": "the channels have 2 rates: 128, 2 Hz … the same "
        "sampling rate (-c)",
        "a.edf --to npz --json a-2Hz.npz": "'a-2Hz.npz' is also the run record",
    },
    "convert night.edf": {
        "": "output format is missing; supported: edf, bdf, wav, npz, parquet, flac",
        "-o x.ogg": "ends in '.ogg'",
        "-o x.edf --to wav": "means format edf; omit --to",
        "-o no/x.edf": "the folder does not exist; create the folder first",
        "--to npz --bits 16": "bits is 16; npz stores samples with their original "
        "dtype",
        "--to wav --full-scale 9": "full_scale is not supported for floats; only "
        "integer formats use a full scale; also pass --bits 16",
        "-o s3://a/b.edf": "cannot be written to a URL; results are written as local",
        "-o x.npz --json x.npz": "the file is also the output file of --",
        "b.npz -o x.npz": "one output file was given for 2 recordings",
        "-o x.wav --bits 16": "rlxweb: writing 'x.wav': channel 'EEG Fz' is … full "
        "scale is 1 uV … pass a larger --full-scale VALUE",
        "--to edf": "the file is also the recording 'night.edf'",
        "--to edf --overwrite": "the file is also the recording 'night.edf'",
        "-o night.edf": "the file is also the recording 'night.edf'",
        "-o night.edf --overwrite": "the file is also the recording 'night.edf'",
    },
    "export": {
        "mine_to_export:number out": "got an int; expected a Graph",
        "mine_to_export:broken out": "raised ValueError: nobody home;",
        "mine_to_export:compild out": "did you mean 'compiled'?",
        "torn_to_export:g out": "raised ModuleNotFoundError",
        "nowhere:g out": "there is no module 'nowhere'",
        "no.py:g out": "there is no file 'no.py'",
        "mine_to_export out": "MODULE:GRAPH or FILE.py:GRAPH",
        "mine_to_export:graph out": "'w' has no value",
        "mine_to_export:bare out --rows 3": "it applies only to `export welch`",
        "mine_to_export:bare out --outputs a,b": "1 different names",
        "mine_to_export:bare out --package p": "it requires --to npm",
        "welch out": "--rows is missing",
    },
    EXPORT_WELCH: {
        "--weights w.npz": "it applies only to graphs",
        "--limit maxBuferSize=1": "did you mean 'maxBufferSize'",
        "--limit maxBufferSize=1k": "an integer above 0",
    },
    "export mine_to_export:graph out --weights": {
        "x.npz": "'x.npz': the file cannot be read (No such file",
        "beside.py": "the file cannot be read … expected an NPZ file",
        "v.npz": "no param 'v'; its params are 'w'",
        "shape.npz": "param 'w': the array has shape [2, 3]",
        "dtype.npz": "the array has dtype float64",
        "none.npz": "'w' has no value",
    },
    "learn": {
        "red.npz --band 32:200": "--out F is missing",
        "red.npz --out m.rlxl": "--band LOW:HIGH is missing",
    },
    f"learn {QUICK_LEARN} --out m.rlxl": {
        "no.npz": "'no.npz': the file does not exist",
        "no*.npz": "'no*.npz': no file matches",
        "short.npz": "training segments and 0 test rows",
        "red.npz --plot m.gif": "the suffix is '.gif'",
        "red.npz --json m.rlxl": "the file is also the output file of --out",
        "red.npz --n-fft 100": "100 is not a power of two",
        "red.npz --band 33:40": "there is no bin between 33 and 40 Hz",
        "red.npz --band 40:20": "'40:20' is not a range",
        "red.npz --k 50": "k is 50; must be 1 to 8, the number of bins in the band",
        "red.npz --window cosy": "no window is named 'cosy'",
        "red.npz -c EKG": "no channel is named 'EKG'",
        "red.npz slow.npz": "rates, 2048 and 1024 Hz, in 'red.npz' and 'slow.npz' … "
        "--resample 2048",
        "red.npz --out m.npz": "must end in .rlxl",
        "red.npz --out gone/m.rlxl": "'gone/m.rlxl': the folder does not exist",
    },
    "live": {
        "-": "missing options: --raw, --channels, --fs; a pipe has no header … --fs "
        "256",
        "lsl --fs 9": "--fs … does not apply to 'lsl'",
        "mic --replay 1": "--replay … does not apply to 'mic'",
        "a.edf --spectra": "--spectra … --json-lines",
        "a.edf --port 8765": "--port … it requires --web",
        "a.edf --no-open": "--no-open … it requires --web",
        "nowhere.edf": "'nowhere.edf': the file does not exist",
        "slow.edf --segment-s nan": "'--segment-s': nan is not finite",
        "slow.edf --replay 1000 --fmin 40": "there is no bin at or above 40 Hz",
    },
    "profile": {
        "": "got neither a FILE nor a graph",
        "a.edf --graph b.py:c": "got both a FILE and a graph",
        "a.edf --weights w.npz": "--weights: it applies only to graphs",
        "--graph b.py:c --nperseg 64": "--nperseg: it applies only to a FILE",
        "--graph b.py": "the name of the graph is missing",
        "--graph gone.py:g": "profile gone.py:g: there is no file 'gone.py'",
        "gone.edf": "'gone.edf': the file does not exist",
        "gone.edf --json p.json": "'gone.edf': the file does not exist",
        "a.edf --plot roof.gif": "the suffix is '.gif'",
        "a.edf --repeats 0": "'--repeats': 0 is not in the range",
    },
    "bench": {
        "x": "rlxweb: got unexpected extra argument (x); see rlxweb bench --help",
        "--quick --compare cpu.json cpu.json": "--compare only reads existing results",
    },
    "bench --compare cpu.json": {
        "gpu.json": "got 'rlxweb.bench.gpu/1'",
        "list.json": "'rlxweb.bench.engines/1', got None",
        "text.json": "the file cannot be read",
        "damaged.json": "the file is damaged",
        "nothing.json": "no case in common",
    },
    "calibrate": {
        "--device abacus": "unknown device 'abacus'",
        "--show --json --device abacus": "unknown device 'abacus'",
        "--device vulcan": "did you mean 'vulkan'?",
        "--device ''": "empty device name",
        "--device vulkan:a --adapter b": "--device already names an adapter; omit "
        "--adapter",
        "--budget-s 0": "0.0 is not in the range",
        "--budget-s -1": "-1.0 is not in the range",
        "--budget-s 601": "601.0 is not in the range 0.0<x<=600.0",
        "--budget-s soon": "'soon' is not a valid float",
        "--budget-s nan": "'--budget-s': nan is not finite",
        "--fast": "no such option '--fast'",
        "--json out.json": "unexpected extra argument (out.json)",
    },
    "smoke --quick": {
        "--device vulkn": "unknown device 'vulkn' … vulkan",
        "--require cpu,gppu": "unknown device 'gppu'",
        "-k 'soft and'": "a word is missing at the end",
        "--json /no/such/folder/f.json": "--json: there is no folder '/no/such/folder'",
        "--json /": "--json: '/' is a folder",
        "--deadline 0": "'--deadline': 0.0 is not in the range",
        "--icd /no/such/icd.json": "File '/no/such/icd.json' does not exist",
        "--sabotage crush:x --device cpu": "unknown kind 'crush'",
    },
    "smoke --quick --device cpu -k samples/exp/*": {
        "--html /no/such/folder/f.html": "--html … there is no folder",
        "--junit /": "--junit … is a folder",
        "--json - --html -": "--json and --html … two outputs name the same file",
        "--compare /no/such.json": "the report '/no/such.json': No such file",
        "--known-failures /no/such.toml": "'/no/such.toml': No such file … \"none\"",
        "--slower 1": "'--slower': 1.0 is not in the range x>=1.01",
        "--site /tmp": "--site … only to --browser and --wasm",
        "--browser no-such-browser --site /": "program 'no-such-browser' was not found",
        "--browser by-hand --site /": "pyodide.mjs … ./dev site",
    },
}
"""Command → the rest of its line → error, where " … " stands for any text."""
PARQUET_FILES = {
    "nowhere/o.parquet": "the folder does not exist",
    "folder.parquet": "expected a file, got a folder",
    "s3://bucket/o.parquet": "cannot be written to a URL … pass a local file",
    "input.parquet": "the file is also the recording 'input.parquet'",
    **{
        name: f"--out {name!r} … must end in .parquet … use --csv, --json, --npz or "
        "--plot"
        for name in ("o.csv", "o", "-", "/dev/stdout", "o.parquet.gz")
    },
    "o.parquet --resume --npz o.npz": "the earlier run saved no spectra … --npz",
    "o.parquet --resume --plot o.png": "the earlier run saved no spectra … --plot",
}
"""What follows `--out` → error."""
SLOW = pytest.mark.slow
WGPU = pytest.mark.requires_wgpu
PLOT = pytest.mark.needs("matplotlib")
PARQUET = pytest.mark.needs("pyarrow")


def refused(
    line: str, error: str, *marks: pytest.MarkDecorator, code: int = 2, beside: str = ""
) -> Any:
    """Return a case: a command line, its error and exit code.

    beside  the file that is in the folder though the line does not name it
    """
    name = line.strip().replace(QUICK_LEARN, "..")[:120]
    return pytest.param(line, error, code, beside, id=name, marks=marks)


CASES = [
    *(
        refused(f"{command} {words}", error)
        for command, errors in REFUSALS.items()
        for words, error in errors.items()
    ),
    *(
        refused(f"welch input.parquet x.npy --fs 100 --out {out}", error, PARQUET)
        for out, error in PARQUET_FILES.items()
    ),
    *(
        refused(
            f"convert {files} --to npz {options}",
            "'a-2Hz.npz' is also the output of the recording 'A-2HZ.edf'",
        )
        for files in ("a.edf A-2HZ.edf", "A-2HZ.edf a.edf")
        for options in ("", "--overwrite", "--jobs 2", "--keep-going")
    ),
    refused(
        "convert night.edf --to wav",
        "'night.wav' already exists; pass --overwrite to replace it",
        beside="night.wav",
    ),
    *(
        refused(
            f"convert psg.edf {output}",
            "'psg-128Hz.wav' already exists … --overwrite",
            beside="psg-128Hz.wav",
        )
        for output in ("--to wav", "-o psg.wav")
    ),
    refused(
        "welch x.npy gap.npy --fs 9 --plot -",
        "--plot … the file is also the output file of --plot",
        PLOT,
    ),
    refused("demo two.npz --out .", "with `rlxweb welch`: pass --array NAME", PLOT),
    refused("demo gap.npy --out .", "unknown; NPY … ; pass --fs HZ", PLOT),
    refused(
        "demo gap.npy --out . --fs 9",
        "with `rlxweb welch`: repair … or pass --nan propagate",
        PLOT,
    ),
    refused(
        f"{EXPORT_WELCH} --mode peaks",
        "use --mode bins; to find local maxima in your own JavaScript, also use "
        "--output power",
        code=4,
    ),
    refused(
        f"{EXPORT_WELCH} --limit maxBufferSize=64",
        "at most 64 bytes per buffer",
        code=4,
    ),
    # Also where no step of the training asks for the device.
    refused(f"learn red.npz {UNTRAINED} --device tpu", "open device 'tpu'", code=3),
    refused(
        f"learn red.npz {UNTRAINED} --device auto --adapter zzz",
        "name containing 'zzz'",
        SLOW,
        code=3,
    ),
    refused("calibrate --device cuda", "open device 'cuda'", code=3),
    refused(
        "calibrate --adapter 'abacus 3000'",
        "its name does not contain 'abacus 3000'",
        WGPU,
        code=3,
    ),
    refused(
        "calibrate --device cpu --budget-s 1e-9",
        "rlxweb: calibrate cpu: nothing could be measured; … time limit was reached",
        code=1,
    ),
    refused("smoke --quick -k no-such-op --device cpu", "no case matches", SLOW),
]


def folder_contents(folder: Path) -> dict[Path, bytes]:
    """Return the files and folders below a folder, with the bytes of each file.

    Python's own are left out: a module that is imported is compiled.
    """
    return {
        path: b"" if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize(("line", "error", "code", "beside"), CASES)
def test_wrong_input_is_refused_in_one_line(
    *,
    call: CommandRunner,
    place_files: Callable[[str], None],
    cache: Path,
    line: str,
    error: str,
    code: int,
    beside: str,
) -> None:
    pattern = f" … {error} … "
    assert not matches(pattern, line, " … "), "any error that repeats the line has it"
    place_files(f"{line} {beside}")
    before = folder_contents(Path.cwd())
    result = call(*shlex.split(line))
    check_rejected(result, code)
    assert matches(pattern, result.errors[0], " … "), result.err
    assert folder_contents(Path.cwd()) == before
    if line.startswith("calibrate"):
        assert not cache.exists()


def test_dissimilar_names_get_no_suggestion(call: CommandRunner) -> None:
    """`--fs` is no answer to a band."""
    for option in ("--frequency", "--xyz"):
        assert "did you mean" not in call("welch", option, 1).err


@pytest.mark.parametrize("name", COMMANDS)
def test_no_range_of_a_command_has_nan_in_it(name: str) -> None:
    """As click's own ranges do."""
    command = import_module(f"rlxweb.cli.{name}_command").command
    ranges = [p.type for p in command.params if isinstance(p.type, click.FloatRange)]
    assert {type(one) for one in ranges} <= {FiniteFloatRange}
