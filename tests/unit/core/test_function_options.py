"""Options that a function declares once, and what is derived from them."""

from __future__ import annotations

import json
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

import rlxweb as rlx
from rlxweb.batch.settings import Settings, group_spec
from rlxweb.cli.options import declared_options
from rlxweb.core.argument_validation import NAMES_ELSEWHERE
from rlxweb.core.errors import UsageError
from rlxweb.core.function_options import (
    FROM_SIGNATURE,
    Option,
    call_arguments,
    declare_options,
    options_of,
)
from rlxweb.io import open_recording
from rlxweb.signal.spectrum_peaks import PeakSearch
from rlxweb.signal.welch_peaks import welch_peaks
from rlxweb.signal.welch_request import WelchRequest
from tests.howto_pages import apply_diff, code_blocks, copy_package, run_copy

X = np.random.default_rng(4).standard_normal(512)


@declare_options(
    count=Option("How many.", is_positive=True, default=FROM_SIGNATURE),
    share=Option("Which share.", below=1.0),
    mode=Option("Which way.", choices=("up", "down")),
    names=Option("Whose.", is_list=True, flags=("-n",)),
    limits=Option("Up to where.", is_list=True, is_positive=True),
)
def scale(
    x: object,
    count: int = 3,
    share: float | None = None,
    mode: str = "up",
    names: str | tuple[str, ...] = (),
    limits: tuple[float, ...] | float = (),
) -> None:
    """Do nothing: the options of this function are what is tested."""


def run_scale(*arguments: str) -> Any:
    """Return the values of the options, or the text of the refusal."""

    @click.command()
    @declared_options(scale)
    def command(**values: Any) -> None:
        click.echo(json.dumps(values))

    result = CliRunner().invoke(command, arguments)
    return json.loads(result.stdout) if result.exit_code == 0 else result.stderr


def test_the_signature_gives_type_and_default() -> None:
    assert run_scale() == {
        "count": 3,
        "share": None,
        "mode": None,
        "names": [],
        "limits": [],
    }
    values = run_scale(
        *("--count", "7", "--share", "0", "--mode", "down"),
        *("-n", 'a, "b, c"', "--names", "d", "--limits", "2", "--limits", "0.5"),
    )
    assert values == {
        "count": 7,
        "share": 0.0,
        "mode": "down",
        "names": ["a", "b, c", "d"],
        "limits": [2.0, 0.5],
    }


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        (("--count", "0"), "0 is not in the range x>=1"),
        (("--count", "1.5"), "'1.5' is not a valid integer"),
        (("--share", "1"), "1.0 is not in the range 0<=x<1.0"),
        (("--share", "much"), "'much' is not a valid float"),
        (("--mode", "sideways"), "'sideways' is not one of 'up', 'down'"),
        (("--limits", "0"), "0.0 is not in the range x>0"),
    ],
)
def test_a_value_outside_the_declaration_is_refused(
    argument: tuple[str, ...], reason: str
) -> None:
    assert reason in run_scale(*argument)


def test_an_option_must_be_a_parameter() -> None:
    with pytest.raises(TypeError, match=r"scale\(\) has no parameter 'cuont'"):
        declare_options(cuont=Option("Misspelled."))(scale)
    assert "count" in options_of(scale)


def test_what_is_left_out_is_left_to_the_function() -> None:
    values = {"a": None, "b": (), "c": 0, "d": "", "e": "none"}
    assert call_arguments(values) == {"c": 0, "d": "", "e": "none"}


def test_every_declared_option_is_a_setting_of_a_run() -> None:
    """Each is read, recorded and replaced by its name; no other is taken."""
    declared = {**options_of(welch_peaks), **options_of(open_recording)}
    settings = Settings()
    assert set(declared) | {"segment_s", "epochs"} == set(settings.as_json())
    for name in declared:
        value = "propagate" if name == "nan" else "changed"
        changed = settings.with_changes(**{name: value})
        assert getattr(changed, name) == changed.as_json()[name] == value, name
        assert changed != settings
    with pytest.raises(TypeError, match=r"Settings\(\).*'sfreq'; did you mean 'fs'\?"):
        Settings(sfreq=100.0)


def test_a_run_over_recordings_computes_every_option() -> None:
    """No option of `welch_peaks` is taken by the command line and then ignored.

    Each is a field of the estimate or of the search for peaks, or one of these, which
    `batch/recording_analysis.py` uses by name.
    """
    by_name = {"fmin", "fmax", "device", "adapter", "precision", "nan"}
    estimate = {field.name for field in fields(WelchRequest)}
    assert set(options_of(welch_peaks)) <= estimate | set(PeakSearch._fields) | by_name


UNUSED_FIELDS: dict[str, set[str]] = {
    # As SciPy's function, which they replace.
    "welch": {"nsegments", *PeakSearch._fields},
    "welch_peaks": {"nfft", "return_onesided", "scaling", "average"},
    # Its `average` is over time, and of as many segments as there are.
    "WelchStream": {"nfft", "return_onesided", "scaling", "nsegments"},
    # A page searches the strongest bins; what it averages is a mean, one-sided.
    "export_welch": {"return_onesided", "average", "prominence"},
}
"""Fields of an estimate and of its search for peaks that a function does not take."""


@pytest.mark.parametrize("name", UNUSED_FIELDS)
def test_every_field_of_an_estimate_is_a_parameter(name: str) -> None:
    """A field that is new is taken by each function, or noted above as unused."""
    known_fields = {field.name for field in fields(WelchRequest)}
    known_fields |= set(PeakSearch._fields)
    parameters = set(signature(getattr(rlx, name)).parameters)
    assert known_fields - parameters == UNUSED_FIELDS[name]


def test_every_field_of_an_estimate_is_an_option_of_the_command_line() -> None:
    """Each field that `welch_peaks` takes is an option; the rate is one of reading."""
    known_fields = {field.name for field in fields(WelchRequest)}
    known_fields |= set(PeakSearch._fields)
    parameters = set(signature(welch_peaks).parameters)
    options = {*options_of(welch_peaks), *options_of(open_recording)}
    assert known_fields & parameters <= options


def test_none_leaves_an_option_out() -> None:
    """None is the default, whatever that is; wrong values are refused, not rounded."""
    assert Settings(**dict.fromkeys(options_of(welch_peaks))) == Settings()
    assert Settings(nan=None).nan == "raise"
    assert Settings(device=None).requested_device == "auto"
    assert hash(Settings(k=3)) == hash(Settings(k=3)) != hash(Settings(k=4))
    with pytest.raises(UsageError, match="nan is 'rasie'"):
        Settings(nan="rasie")
    group = rlx.io.Recording.from_array(X[None], 100.0).groups[0]
    window = np.hanning(64)
    spec = group_spec(Settings(window=window, nperseg=64), group, 64)
    np.testing.assert_array_equal(spec.window_array, window)
    assert Settings(nperseg=64.0).nperseg_for(group) == 64
    for wrong in (64.5, "64", True):
        with pytest.raises(UsageError, match="nperseg"):
            Settings(nperseg=wrong).nperseg_for(group)


@pytest.mark.parametrize(("elsewhere", "here"), sorted(NAMES_ELSEWHERE.items()))
def test_names_of_other_libraries_are_translated(elsewhere: str, here: str) -> None:
    """A keyword of MNE or librosa gets the name here as its hint."""
    function: Any = {"channels": rlx.read, "bands": rlx.band_power}.get(
        here, welch_peaks
    )
    source = "x.npz" if here == "channels" else X
    with pytest.raises(TypeError, match=rf"'{elsewhere}'; did you mean '{here}'\?"):
        function(source, **{elsewhere: 1})


PROGRAM = """
import json, sys
import numpy as np
import rlxweb as rlx
from rlxweb.cli.main import main
from rlxweb.errors import UsageError

x = np.random.default_rng(1).standard_normal(2048)
np.savez("x.npz", x=x, fs=256.0)
for mode in ("bins", "peaks"):
    options = {"fs": 256.0, "k": 8, "mode": mode, "device": "cpu"}
    power = np.sort(rlx.welch_peaks(x, **options).power)[::-1]
    peaks = rlx.welch_peaks(x, min_power=power[2], **options)
    np.testing.assert_array_equal(np.sort(peaks.power[:3])[::-1], power[:3])
    assert np.isnan(peaks.power[3:]).all(), peaks.power
try:
    rlx.welch_peaks(x, min_power="much")
except UsageError as error:
    print(error)
command = "welch x.npz --min-power 0.5 --k 3 --device cpu --json -"
sys.argv[1:] = command.split()
try:
    main()
except SystemExit as end:
    assert not end.code
"""


def test_the_pages_diffs_make_an_option(tmp_path: Path) -> None:
    """Python, the command line and the record of a run have what the page adds."""
    copy_package(tmp_path)
    for diff in code_blocks("add-an-option", "diff"):
        apply_diff(tmp_path, diff)
    refusal, *record = run_copy(tmp_path, PROGRAM)
    assert refusal == "welch_peaks: min_power is 'much'; it must be a number"
    assert json.loads("".join(record))["settings"]["min_power"] == 0.5
