"""Numbers in the manual's text that are constants of the code, compared with the code.

Those that a run gives are compared where they are printed; those of a benchmark come
from its results.
"""

from __future__ import annotations

import re

import pytest

from rlxweb.batch.cluster import cluster_clients, task_packing
from rlxweb.cli.peaks_parquet import MIN_GROUP_ROWS
from rlxweb.codegen import array_tiles, result_buffer_pool
from rlxweb.engines import cpu_numpy_elementwise
from rlxweb.engines.webgpu import input_bindings
from rlxweb.export import local_server
from rlxweb.io import chunked_array_reader, http_ranges, npz_reader, read_ahead
from rlxweb.live import continuous_analysis, latest_update, lsl_source
from rlxweb.ops import cache_blocking
from rlxweb.ops.reduce.cpu import numpy as numpy_fast_float32_sums
from rlxweb.ops.welch.cpu import kernel as compiled_welch
from rlxweb.ops.welch.cpu import spectrum as welch_spectrum
from rlxweb.select.calibration.profitability import (
    NS_PER_MS,
    NS_PER_S,
    ProfitabilityPolicy,
)
from rlxweb.signal import band_power
from tests.unit.site.built_manual import PAGES

MIB = 1 << 20
_COMPILED_PAGE = "concepts/compiled.md"
_DECISIONS_PAGE = "concepts/decisions.md"
_PROFITABILITY = ProfitabilityPolicy()
DOCUMENTED_CONSTANTS = [
    (
        _DECISIONS_PAGE,
        "device could answer (# ms)",
        _PROFITABILITY.min_round_trip_ns / NS_PER_MS,
    ),
    (
        _DECISIONS_PAGE,
        "Jobs below # ms stay on the CPU",
        _PROFITABILITY.open_job_ns / NS_PER_MS,
    ),
    (
        _DECISIONS_PAGE,
        "are measured for a job of # ms",
        _PROFITABILITY.measure_job_ns / NS_PER_MS,
    ),
    (
        _DECISIONS_PAGE,
        "stay on the CPU until half a second",
        _PROFITABILITY.open_sum_ns / (NS_PER_S / 2),
    ),
    (
        _DECISIONS_PAGE,
        "after two seconds of work",
        _PROFITABILITY.measure_sum_ns / (2 * NS_PER_S),
    ),
    (_COMPILED_PAGE, "any `nfft` up to #", compiled_welch.MAX_TRANSFORM_LENGTH),
    (
        _COMPILED_PAGE,
        "is kept, # MiB at most",
        result_buffer_pool.MAX_POOLED_BYTES / MIB,
    ),
    (_COMPILED_PAGE, "in blocks of # elements", cpu_numpy_elementwise._BLOCK_ELEMENTS),
    (_COMPILED_PAGE, "elements, of # on threads", array_tiles.TILE_ELEMENTS),
    (
        _COMPILED_PAGE,
        "transforms of # elements or more",
        cache_blocking.MIN_BLOCKED_ELEMENTS,
    ),
    (
        _COMPILED_PAGE,
        "sum, mean of float32, # elements or more",
        numpy_fast_float32_sums._MIN_ELEMENTS,
    ),
    (_COMPILED_PAGE, "runs of # in float32", numpy_fast_float32_sums.RUN_LENGTH),
    (_COMPILED_PAGE, "on threads from # samples on", welch_spectrum.THREADED_SAMPLES),
    ("howto/bands.md", "hold two cycles of the lowest edge", band_power.MIN_CYCLES / 2),
    ("howto/cluster.md", "or up to # small ones", task_packing.MAX_RECORDINGS_PER_TASK),
    ("howto/cluster.md", "of together # MiB", task_packing.MAX_TASK_NBYTES / MIB),
    (
        "howto/cluster.md",
        "after # seconds exit code 3",
        cluster_clients.CONNECT_TIMEOUT_S,
    ),
    (
        "howto/keep-data.md",
        "WGSL binds it: from # MiB",
        input_bindings.MIN_BIND_BYTES / MIB,
    ),
    (
        "howto/live.md",
        "none came for two seconds",
        continuous_analysis.STALL_TIMEOUT_S / 2,
    ),
    (
        "howto/live.md",
        "no stream within five seconds",
        lsl_source.RESOLVE_TIMEOUT_S / 5,
    ),
    ("howto/remote-files.md", "by ranges of # MiB", read_ahead.MAX_BLOCK_NBYTES / MIB),
    (
        "howto/remote-files.md",
        "up to # GiB |",
        npz_reader.file_limits.CHECKSUM_NBYTES / (1 << 30),
    ),
    (
        "howto/remote-files.md",
        "files up to # MiB",
        http_ranges.MAX_WHOLE_FILE_NBYTES / MIB,
    ),
    ("howto/results.md", "Groups of about #,000 rows", MIN_GROUP_ROWS // 1000),
    (
        "reference/files.md",
        "where # MiB hold them",
        chunked_array_reader.MAX_CACHED_NBYTES / MIB,
    ),
    ("security.md", "At most # connections", local_server._MAX_CONNECTIONS),
    ("security.md", "connections and # viewers", latest_update.MAX_VIEWERS),
]


@pytest.mark.parametrize(
    ("page", "words", "figure"),
    DOCUMENTED_CONSTANTS,
    ids=[words for _, words, _ in DOCUMENTED_CONSTANTS],
)
def test_documented_number_equals_the_constant(
    page: str, words: str, figure: float
) -> None:
    """The number at `#` equals the constant; words without `#` spell it, so that the
    ratio is 1.
    """
    pattern = r"\s+".join(map(re.escape, words.split())).replace(
        r"\#", r"([\d,.]+\d|\d)"
    )
    match = re.search(pattern, (PAGES / page).read_text("utf-8"))
    assert match is not None, f"{page} does not say {words!r}"
    documented = float(match[1].replace(",", "")) if "#" in words else 1.0
    assert documented == figure
