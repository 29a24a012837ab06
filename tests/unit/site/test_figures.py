"""Figures of the manual's text that are settings of the code, held to the code.

Those that a run gives are compared where they are printed; those of a benchmark come
from its results.
"""

from __future__ import annotations

import re

import pytest

from rlxweb.backends import cpu_blocks, webgpu_bindings
from rlxweb.calibration.worth import MS, S, Worth
from rlxweb.cli.peaks_table import GROUP_ROWS
from rlxweb.dask import connect, packing
from rlxweb.host import arrays, boxes, compiled, in_parts, short_sums, spectrum
from rlxweb.io import http_ranges, npz, read_ahead, strips
from rlxweb.live import board, lsl, watch
from rlxweb.pages import server
from rlxweb.signal import bands
from tests.unit.site.manual import PAGES

MIB = 1 << 20
_COMPILED = "concepts/compiled.md"
_DECISIONS = "concepts/decisions.md"
_WORTH = Worth()
FIGURES = [
    (_DECISIONS, "device could answer (# ms)", _WORTH.least_trip_ns / MS),
    (_DECISIONS, "Jobs below # ms stay on the CPU", _WORTH.open_job_ns / MS),
    (_DECISIONS, "are measured for a job of # ms", _WORTH.measure_job_ns / MS),
    (_DECISIONS, "stay on the CPU until half a second", _WORTH.open_sum_ns / (S / 2)),
    (_DECISIONS, "after two seconds of work", _WORTH.measure_sum_ns / (2 * S)),
    (_COMPILED, "any `nfft` up to #", compiled.LONGEST),
    (_COMPILED, "is kept, # MiB at most", arrays.MOST / MIB),
    (_COMPILED, "in blocks of # elements", cpu_blocks._IN_CACHE),
    (_COMPILED, "elements, of # on threads", boxes.SHARE),
    (_COMPILED, "transforms of # elements or more", in_parts.LEAST),
    (_COMPILED, "sum, mean of float32, # elements or more", short_sums._LEAST),
    (_COMPILED, "runs of # in float32", short_sums.RUN),
    (_COMPILED, "on threads from # samples on", spectrum.THREADED_SAMPLES),
    ("howto/bands.md", "hold two cycles of the lowest edge", bands.CYCLES / 2),
    ("howto/cluster.md", "or up to # small ones", packing.MOST_TOGETHER),
    ("howto/cluster.md", "of together # MiB", packing.TASK_BYTES / MIB),
    ("howto/cluster.md", "after # seconds exit code 3", connect.FIND_S),
    (
        "howto/keep-data.md",
        "WGSL binds it: from # MiB",
        webgpu_bindings.WORTH_BINDING / MIB,
    ),
    ("howto/live.md", "none came for two seconds", watch.STALL_S / 2),
    ("howto/live.md", "no stream within five seconds", lsl.WAIT_S / 5),
    ("howto/remote-files.md", "by ranges of # MiB", read_ahead.LARGEST / MIB),
    ("howto/remote-files.md", "up to # GiB |", npz.bounds.SUMMED_NBYTES / (1 << 30)),
    ("howto/remote-files.md", "files up to # MiB", http_ranges.WHOLE_NBYTES / MIB),
    ("howto/results.md", "Groups of about #,000 rows", GROUP_ROWS // 1000),
    ("reference/files.md", "where # MiB hold them", strips.HELD_NBYTES / MIB),
    ("security.md", "At most # connections", server._MOST_LINES),
    ("security.md", "connections and # viewers", board.MOST_VIEWERS),
]


@pytest.mark.parametrize(
    ("page", "words", "figure"), FIGURES, ids=[words for _, words, _ in FIGURES]
)
def test_a_figure_of_the_text_is_that_of_the_code(
    page: str, words: str, figure: float
) -> None:
    """`#` stands for it; words without one say a number in letters: its ratio is 1."""
    pattern = r"\s+".join(map(re.escape, words.split())).replace(
        r"\#", r"([\d,.]+\d|\d)"
    )
    found = re.search(pattern, (PAGES / page).read_text("utf-8"))
    assert found is not None, f"{page} does not say {words!r}"
    said = float(found[1].replace(",", "")) if "#" in words else 1.0
    assert said == figure
