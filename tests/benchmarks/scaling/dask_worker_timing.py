"""Measured cost of analysing recordings in this process, on one Dask worker and on two,
interleaved; cost per task.

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
from rlxweb.batch.cluster import task_packing
from rlxweb.batch.cluster.recordings import spread
from rlxweb.batch.cluster.task_packing import MAX_RECORDINGS_PER_TASK
from rlxweb.batch.recording_analysis import analyse_file
from rlxweb.batch.settings import Settings
from rlxweb.core.errors import RlxError
from tests.benchmarks.scaling.simulation import TaskCosts

FS, CHANNELS = 256, 16
START_TIMEOUT_S = 60
RESULT_TIMEOUT_S = 3600
DEVICE = "cpu"
SETTINGS = Settings(device=DEVICE, spectra=False)


@dataclass(frozen=True, slots=True)
class RecordingSet:
    """Set of recordings of one length."""

    seconds: int
    count: int


SIZES = (RecordingSet(256, 192), RecordingSet(2048, 24), RecordingSet(16384, 6))
"""16 channels at 256 Hz: 2, 17 and 134 MB."""
TINY_RECORDINGS = RecordingSet(8, 300)
ALL_CORES = os.sched_getaffinity(0)
WORKER_CORES = {min(ALL_CORES)}
OTHER_CORES = (ALL_CORES - {min(ALL_CORES)}) or ALL_CORES
CHUNKS, ROWS, ROW_LENGTH = 6, 8192, 4096
"""Of a Dask array: of float32 each of them is 128 MiB, Dask's own default."""


def write_recordings(folder: Path, size: RecordingSet) -> list[str]:
    """Write EDF files that differ only in their names and return their paths."""
    rng = np.random.default_rng(size.seconds)
    first = folder / f"{size.seconds}-0.edf"
    signals = [
        edfio.EdfSignal(
            rng.standard_normal(size.seconds * FS) * 20,
            FS,
            label=f"EEG {index}",
            physical_dimension="uV",
            physical_range=(-200, 200),
        )
        for index in range(CHANNELS)
    ]
    edfio.Edf(signals).write(first)
    paths = [first]
    for index in range(1, size.count):
        paths.append(folder / f"{size.seconds}-{index}.edf")
        shutil.copyfile(first, paths[-1])
    return [str(name) for name in paths]


class Cluster:
    """Scheduler and workers, each in a process of its own, and a client in this
    process.
    """

    def __init__(self, workers: int, exit_stack: ExitStack) -> None:
        worker_cores, scheduler_cores = (
            (WORKER_CORES, OTHER_CORES) if workers == 1 else (ALL_CORES, ALL_CORES)
        )
        security = Security.temporary()
        files = exit_stack.enter_context(_certificate_files(security))
        scheduler = "scheduler", "--port", "0", *files
        self.scheduler = exit_stack.enter_context(
            _run_dask(scheduler_cores, *scheduler)
        )
        self.address = _scheduler_address(self.scheduler)
        worker = "worker", self.address, "--nthreads", "1", *files
        self.nannies = [
            exit_stack.enter_context(_run_dask(worker_cores, *worker))
            for _ in range(workers)
        ]
        self.client = exit_stack.enter_context(
            Client(self.address, timeout=START_TIMEOUT_S, security=security)
        )
        self.client.wait_for_workers(workers, timeout=START_TIMEOUT_S)

    def run(self, files: Sequence[str]) -> list[Any]:
        results = list(spread(files, SETTINGS, self.client, _print_message))
        errors = [outcome for _, outcome in results if isinstance(outcome, RlxError)]
        if errors or len(results) != len(files):
            raise RuntimeError(f"{len(results)} of {len(files)} done, wrong: {errors}")
        return [outcome for _, outcome in results]

    def processor_s(self) -> tuple[float, float]:
        """Return the processor time of the scheduler and of all workers so far."""
        workers = [
            worker
            for nanny in self.nannies
            for worker in psutil.Process(nanny.pid).children(recursive=True)
        ]
        scheduler = psutil.Process(self.scheduler.pid)
        return _processor_s(scheduler), sum(map(_processor_s, workers))


def measure_scaling(
    sizes: Sequence[RecordingSet],
    chunk: tuple[int, int, int],
    rounds: int,
    folder: Path,
) -> dict[str, Any]:
    """Measure every size interleaved, chunks of an array, then the cost of a task
    beside its work.

    chunk   how many of them, and the shape of one
    """
    with ExitStack() as exit_stack:
        exit_stack.callback(_pin_to_cores, ALL_CORES)
        _pin_to_cores(OTHER_CORES)
        one_worker, two_workers = Cluster(1, exit_stack), Cluster(2, exit_stack)
        targets = ScalingTargets(
            one_worker,
            two_workers,
            _start_pool(1, WORKER_CORES, exit_stack),
            _start_pool(2, ALL_CORES, exit_stack),
        )
        cells = [measure_recordings(size, rounds, folder, targets) for size in sizes]
        array = measure_array(chunk, rounds, folder, targets)
        measurements = {"cells": cells, "array": array}
        return {**measurements, "costs": measure_task_costs(folder, targets)}


@dataclass(frozen=True, slots=True)
class ScalingTargets:
    """Measured targets: a cluster of one worker, one of two, and one and two processes
    without a cluster.
    """

    one_worker: Cluster
    two_workers: Cluster
    one_process: Executor
    two_processes: Executor


def _start_pool(n: int, cores: set[int], exit_stack: ExitStack) -> Executor:
    pool = ProcessPoolExecutor(n, get_context("spawn"), _pin_to_cores, (cores,))
    return exit_stack.enter_context(pool)


def _pin_to_cores(cores: set[int]) -> None:
    """Pin this process and all threads and processes it will start to the cores."""
    os.sched_setaffinity(0, cores)


def measure_recordings(
    size: RecordingSet, rounds: int, folder: Path, targets: ScalingTargets
) -> dict[str, Any]:
    """Measure the milliseconds per recording, medians over the rounds."""
    files = write_recordings(folder, size)

    def run_two_processes() -> None:
        chunk_size = max(1, min(MAX_RECORDINGS_PER_TASK, len(files) // 8))
        list(targets.two_processes.map(analyse_recording, files, chunksize=chunk_size))

    times = measure_interleaved(
        {
            "here": lambda: targets.one_process.submit(
                analysis_processor_s, files
            ).result(RESULT_TIMEOUT_S),
            "one": partial(targets.one_worker.run, files),
            "two": partial(targets.two_workers.run, files),
            "pair": run_two_processes,
        },
        rounds,
    )
    back_nbytes = len(pickle.dumps(analyse_recording(files[0])))
    for file in files:
        os.unlink(file)
    return {
        "nbytes": size.seconds * FS * CHANNELS * 2,
        "count": size.count,
        "back_nbytes": back_nbytes,
        "spread": pstdev(times["here"]) / median(times["here"]),
        **median_times(times, size.count),
    }


def measure_array(
    chunk: tuple[int, int, int], rounds: int, folder: Path, targets: ScalingTargets
) -> dict[str, Any]:
    """Measure the milliseconds per chunk of rows read from a file, medians over the
    rounds.
    """
    count, *shape = chunk
    file = folder / "rows.npy"
    np.save(file, np.random.default_rng(0).standard_normal(shape, np.float32))

    def run_in_pool(pool: Executor) -> None:
        list(pool.map(find_file_peaks, [file] * count))

    def run_on_cluster(cluster: Cluster) -> None:
        rows = da.map_blocks(
            _load_rows,
            str(file),
            chunks=((shape[0],) * count, shape[1]),
            dtype=np.float32,
            meta=np.empty((0, 0), np.float32),
        )
        peaks = rlxweb.dask.welch_peaks(rows, device=DEVICE)
        cluster.client.compute(peaks, sync=True)

    methods = {
        "one": partial(run_on_cluster, targets.one_worker),
        "two": partial(run_on_cluster, targets.two_workers),
    }
    methods |= {
        "here": partial(run_in_pool, targets.one_process),
        "pair": partial(run_in_pool, targets.two_processes),
    }
    times = measure_interleaved(methods, rounds)
    os.unlink(file)
    return {
        "nbytes": 4 * shape[0] * shape[1],
        "count": count,
        **median_times(times, count),
    }


def find_file_peaks(file: Path) -> Any:
    """Find the peaks of one chunk."""
    return rlxweb.welch_peaks(np.load(file), device=DEVICE)


def _load_rows(file: str, block_info: Any = None) -> Any:
    return np.load(file)


def median_times(times: Mapping[str, Sequence[float]], count: int) -> dict[str, float]:
    """Return each method's median time per item and the relative overhead of one
    worker.

    The last is the median over the rounds.
    """
    pairs = zip(times["one"], times["here"], strict=True)
    result = {f"{name}_ms": median(ms) / count for name, ms in times.items()}
    return {
        **result,
        "one_more": median(
            with_worker / without_cluster - 1 for with_worker, without_cluster in pairs
        ),
    }


def measure_interleaved(
    methods: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, list[float]]:
    """Return the milliseconds of each method in every round, after one warm-up
    round.
    """
    times: dict[str, list[float]] = {name: [] for name in methods}
    for round_index in range(-1, rounds):
        for name in _rotate(list(methods), round_index):
            start = time.perf_counter()
            methods[name]()
            if round_index >= 0:
                times[name].append(1e3 * (time.perf_counter() - start))
    return times


def measure_task_costs(folder: Path, targets: ScalingTargets) -> dict[str, float]:
    """Measure the processor time per task of nearly empty recordings, one recording per
    task.
    """
    task_packing.MAX_RECORDINGS_PER_TASK = 1
    files, cluster = write_recordings(folder, TINY_RECORDINGS), targets.one_worker
    cluster.run(files)
    targets.one_process.submit(analysis_processor_s, files).result(RESULT_TIMEOUT_S)
    work = targets.one_process.submit(analysis_processor_s, files).result(
        RESULT_TIMEOUT_S
    )
    scheduler, workers = cluster.processor_s()
    client = time.process_time()
    cluster.run(files)
    client_spent = time.process_time() - client
    processor_after = cluster.processor_s()
    n = len(files)
    task_costs = TaskCosts(
        client_s=client_spent / n,
        scheduler_s=(processor_after[0] - scheduler) / n,
        worker_s=max(0.0, processor_after[1] - workers - work) / n,
    )
    return {name: getattr(task_costs, name) for name in TaskCosts.__slots__}


def analysis_processor_s(files: Sequence[str]) -> float:
    """Analyse recordings without a cluster and return the processor time."""
    start = time.process_time()
    for file in files:
        analyse_recording(file)
    return time.process_time() - start


def analyse_recording(file: str) -> Any:
    """Analyse one recording."""
    return analyse_file(file, SETTINGS)


def _rotate(names: list[str], count: int) -> list[str]:
    offset = count % len(names)
    return names[offset:] + names[:offset]


def _print_message(message: str) -> None:
    print(message, file=sys.stderr)


def _processor_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


@contextmanager
def _run_dask(cores: set[int], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "dask", *arguments, "--host", "127.0.0.1"]
    host_options = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    environment = {**os.environ, "DASK_CONFIG": str(Path(__file__).parent)}
    with subprocess.Popen(
        [*command, *host_options],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=partial(_pin_to_cores, cores),
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextmanager
def _certificate_files(security: Security) -> Iterator[list[str]]:
    """Write a certificate to a private folder and yield the options of Dask's commands
    for it.
    """
    with tempfile.TemporaryDirectory() as folder:
        cert, key = Path(folder, "cert.pem"), Path(folder, "key.pem")
        cert.write_text(security.tls_client_cert)
        key.write_text(security.tls_client_key)
        options = ["--tls-ca-file", cert, "--tls-cert", cert, "--tls-key", key]
        yield [*map(str, options), "--protocol", "tls"]


def _scheduler_address(scheduler: subprocess.Popen[str]) -> str:
    """Return the address that the scheduler prints when it starts to listen."""
    assert scheduler.stderr is not None
    for line in scheduler.stderr:
        if "Scheduler at:" in line:
            return line.split()[-1]
    raise RuntimeError("the scheduler ended before it told its address")
