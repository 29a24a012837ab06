"""What work costs here, on one worker and on two, in turns; what a task costs.

A worker has a core of its own, as on a machine of its own, and so has the process it is
compared with; scheduler and client have the other. Two workers, and two bare processes
that show what they can reach, have both, with everything else.

Scheduler and workers are processes of their own, as on a real cluster, so the processor
time of each can be told apart. They talk over TLS, as those of `--workers` do: a port
of this machine is open to all its users, and a scheduler runs whatever it is sent.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median, pstdev
from typing import Any

import dask.array as da
import edfio
import numpy as np
import psutil
from distributed import Client
from distributed.security import Security

import rlxweb.dask
from rlxweb.dask import packing
from rlxweb.dask.packing import MOST_TOGETHER
from rlxweb.dask.recordings import spread
from rlxweb.errors import RlxError
from rlxweb.jobs.analysis import analyse_file
from rlxweb.jobs.settings import Settings
from tests.benchmarks.scaling.simulation import Costs

FS, CHANNELS = 256, 16
START_S = 60
PATIENCE_S = 3600
DEVICE = "cpu"
SETTINGS = Settings(device=DEVICE, spectra=False)


@dataclass(frozen=True, slots=True)
class Size:
    """A list of recordings of so many seconds."""

    seconds: int
    count: int


SIZES = (Size(256, 192), Size(2048, 24), Size(16384, 6))
"""16 channels at 256 Hz: 2, 17 and 134 MB."""
TINY = Size(8, 300)
ALL = os.sched_getaffinity(0)
OWN, REST = {min(ALL)}, (ALL - {min(ALL)}) or ALL
CHUNKS, ROWS, WIDE = 6, 8192, 4096
"""Of a Dask array: of float32 each of them is 128 MiB, Dask's own default."""


def recordings(folder: Path, size: Size) -> list[str]:
    """EDF files, alike but for their names."""
    rng = np.random.default_rng(size.seconds)
    first = folder / f"{size.seconds}-0.edf"
    signals = [
        edfio.EdfSignal(
            rng.standard_normal(size.seconds * FS) * 20,
            FS,
            label=f"EEG {at}",
            physical_dimension="uV",
            physical_range=(-200, 200),
        )
        for at in range(CHANNELS)
    ]
    edfio.Edf(signals).write(first)
    names = [first]
    for at in range(1, size.count):
        names.append(folder / f"{size.seconds}-{at}.edf")
        shutil.copyfile(first, names[-1])
    return [str(name) for name in names]


class Cluster:
    """A scheduler and workers, each a process; and a client here."""

    def __init__(self, workers: int, running: ExitStack) -> None:
        theirs, rest = (OWN, REST) if workers == 1 else (ALL, ALL)
        security = Security.temporary()
        files = running.enter_context(_certificate_files(security))
        scheduler = "scheduler", "--port", "0", *files
        self.scheduler = running.enter_context(_dask(rest, *scheduler))
        self.address = _address(self.scheduler)
        worker = "worker", self.address, "--nthreads", "1", *files
        self.nannies = [
            running.enter_context(_dask(theirs, *worker)) for _ in range(workers)
        ]
        self.client = running.enter_context(
            Client(self.address, timeout=START_S, security=security)
        )
        self.client.wait_for_workers(workers, timeout=START_S)

    def run(self, files: Sequence[str]) -> list[Any]:
        done = list(spread(files, SETTINGS, self.client, _tell))
        wrong = [outcome for _, outcome in done if isinstance(outcome, RlxError)]
        if wrong or len(done) != len(files):
            raise RuntimeError(f"{len(done)} of {len(files)} done, wrong: {wrong}")
        return [outcome for _, outcome in done]

    def processor_s(self) -> tuple[float, float]:
        """Processor time of the scheduler and of all workers, so far."""
        workers = [
            one
            for nanny in self.nannies
            for one in psutil.Process(nanny.pid).children(recursive=True)
        ]
        scheduler = psutil.Process(self.scheduler.pid)
        return _processor_s(scheduler), sum(map(_processor_s, workers))


def measured(
    sizes: Sequence[Size], chunk: tuple[int, int, int], rounds: int, folder: Path
) -> dict[str, Any]:
    """Every size in turns, chunks of an array, then what a task costs beside its work.

    chunk   how many of them, and the shape of one
    """
    with ExitStack() as running:
        running.callback(_keep_to, ALL)
        _keep_to(REST)
        one, two = Cluster(1, running), Cluster(2, running)
        side = Side(one, two, _pool(1, OWN, running), _pool(2, ALL, running))
        cells = [cell(size, rounds, folder, side) for size in sizes]
        array = array_cell(chunk, rounds, folder, side)
        found = {"cells": cells, "array": array}
        return {**found, "costs": costs(folder, side)}


@dataclass(frozen=True, slots=True)
class Side:
    """What is measured: clusters, a process of none, and two of them."""

    one: Cluster
    two: Cluster
    alone: Executor
    pair: Executor


def _pool(n: int, cores: set[int], running: ExitStack) -> Executor:
    pool = ProcessPoolExecutor(n, get_context("spawn"), _keep_to, (cores,))
    return running.enter_context(pool)


def _keep_to(cores: set[int]) -> None:
    """Keep this process and all threads and processes it will start to the cores."""
    os.sched_setaffinity(0, cores)


def cell(size: Size, rounds: int, folder: Path, side: Side) -> dict[str, Any]:
    """Milliseconds per recording, medians over the rounds."""
    files = recordings(folder, size)

    def pair() -> None:
        each = max(1, min(MOST_TOGETHER, len(files) // 8))
        list(side.pair.map(analysed, files, chunksize=each))

    times = in_turns(
        {
            "here": lambda: side.alone.submit(worked_s, files).result(PATIENCE_S),
            "one": partial(side.one.run, files),
            "two": partial(side.two.run, files),
            "pair": pair,
        },
        rounds,
    )
    back_nbytes = len(pickle.dumps(analysed(files[0])))
    for file in files:
        os.unlink(file)
    return {
        "nbytes": size.seconds * FS * CHANNELS * 2,
        "count": size.count,
        "back_nbytes": back_nbytes,
        "spread": pstdev(times["here"]) / median(times["here"]),
        **medians(times, size.count),
    }


def array_cell(
    chunk: tuple[int, int, int], rounds: int, folder: Path, side: Side
) -> dict[str, Any]:
    """Milliseconds per chunk of rows, each of a file; as `cell`."""
    count, *shape = chunk
    file = folder / "rows.npy"
    np.save(file, np.random.default_rng(0).standard_normal(shape, np.float32))

    def bare(pool: Executor) -> None:
        list(pool.map(peaks_of, [file] * count))

    def on(cluster: Cluster) -> None:
        rows = da.map_blocks(
            _loaded,
            str(file),
            chunks=((shape[0],) * count, shape[1]),
            dtype=np.float32,
            meta=np.empty((0, 0), np.float32),
        )
        found = rlxweb.dask.welch_peaks(rows, device=DEVICE)
        cluster.client.compute(found, sync=True)

    ways = {"one": partial(on, side.one), "two": partial(on, side.two)}
    ways |= {"here": partial(bare, side.alone), "pair": partial(bare, side.pair)}
    times = in_turns(ways, rounds)
    os.unlink(file)
    return {
        "nbytes": 4 * shape[0] * shape[1],
        "count": count,
        **medians(times, count),
    }


def peaks_of(file: Path) -> Any:
    """The peaks of one chunk."""
    return rlxweb.welch_peaks(np.load(file), device=DEVICE)


def _loaded(file: str, block_info: Any = None) -> Any:
    return np.load(file)


def medians(times: Mapping[str, Sequence[float]], count: int) -> dict[str, float]:
    """The median of each way for one of so many, and what one worker took more.

    The last is the median over the rounds.
    """
    pairs = zip(times["one"], times["here"], strict=True)
    found = {f"{name}_ms": median(ms) / count for name, ms in times.items()}
    return {**found, "one_more": median(one / here - 1 for one, here in pairs)}


def in_turns(
    ways: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, list[float]]:
    """Milliseconds of each way in every round, but the first, that warms."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(-1, rounds):
        for name in _turned(list(ways), turn):
            begun = time.perf_counter()
            ways[name]()
            if turn >= 0:
                times[name].append(1e3 * (time.perf_counter() - begun))
    return times


def costs(folder: Path, side: Side) -> dict[str, float]:
    """Processor time per task, of recordings that are next to no work, each alone."""
    packing.MOST_TOGETHER = 1
    files, one = recordings(folder, TINY), side.one
    one.run(files)
    side.alone.submit(worked_s, files).result(PATIENCE_S)
    work = side.alone.submit(worked_s, files).result(PATIENCE_S)
    scheduler, workers = one.processor_s()
    client = time.process_time()
    one.run(files)
    spent = time.process_time() - client
    after = one.processor_s()
    n = len(files)
    found = Costs(
        client_s=spent / n,
        scheduler_s=(after[0] - scheduler) / n,
        worker_s=max(0.0, after[1] - workers - work) / n,
    )
    return {name: getattr(found, name) for name in Costs.__slots__}


def worked_s(files: Sequence[str]) -> float:
    """Recordings without a cluster, and the processor time they took."""
    began = time.process_time()
    for file in files:
        analysed(file)
    return time.process_time() - began


def analysed(file: str) -> Any:
    """The analysis of one recording."""
    return analyse_file(file, SETTINGS)


def _turned(names: list[str], by: int) -> list[str]:
    at = by % len(names)
    return names[at:] + names[:at]


def _tell(said: str) -> None:
    print(said, file=sys.stderr)


def _processor_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


@contextmanager
def _dask(cores: set[int], *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "dask", *words, "--host", "127.0.0.1"]
    quiet = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    environment = {**os.environ, "DASK_CONFIG": str(Path(__file__).parent)}
    with subprocess.Popen(
        [*command, *quiet],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=partial(_keep_to, cores),
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextmanager
def _certificate_files(security: Security) -> Iterator[list[str]]:
    """Options of Dask's commands for a certificate, in a folder closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        cert, key = Path(folder, "cert.pem"), Path(folder, "key.pem")
        cert.write_text(security.tls_client_cert)
        key.write_text(security.tls_client_key)
        options = ["--tls-ca-file", cert, "--tls-cert", cert, "--tls-key", key]
        yield [*map(str, options), "--protocol", "tls"]


def _address(scheduler: subprocess.Popen[str]) -> str:
    """The address where the scheduler listens, which it tells when it does."""
    assert scheduler.stderr is not None
    for line in scheduler.stderr:
        if "Scheduler at:" in line:
            return line.split()[-1]
    raise RuntimeError("the scheduler ended before it told its address")
