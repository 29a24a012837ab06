"""Worker pool that checks fuzz cases, each with a deadline, and replaces workers that
fail.

A worker that answers too late is a hang, one that ends is a crash, one that grew is
asked for no more. The thread of a worker is all that waits for it.
"""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.oracle import NEIGHBOR_PREFIXES, OUTPUT_STEMS
from tests.fuzz.seed_files import seed_rate

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 20.0
"""Deadline for one file: a hundred times what a busy machine needs."""

NO_ANSWER = "no answer"
START_TIMEOUT_S = 120.0
MAX_REFUSAL_GROWTH_NBYTES = 100 << 20
MAX_READ_GROWTH_NBYTES = 400 << 20
"""Limits on how much a rejection and a reading may add to a process's memory."""

REPLACE_AFTER_NBYTES = 50 << 20
"""Growth after which a worker is replaced, since it would hide the growth of later
files.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """Outcome of a case; `broken` says what is wrong, empty where all is well."""

    request: dict[str, Any]
    kind: str = "?"
    origin: str = ""
    outcome: str = "broken"
    broken: str = ""
    how: dict[str, Any] = field(default_factory=dict)
    raw: bytes = b""


class FuzzWorker:
    """Worker process and the folder it works in."""

    def __init__(self, shared: Path, *command: str) -> None:
        command = command or (sys.executable, "-m", "tests.fuzz.worker")
        self.home = Path(tempfile.mkdtemp(prefix="worker-", dir=shared))
        self._growth_nbytes = 0
        self._has_failed = False
        self._answers: queue.Queue[str] = queue.Queue()
        self._process = subprocess.Popen(
            [*command, str(shared), str(self.home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            text=True,
        )
        threading.Thread(target=self._read_answers, daemon=True).start()

    def ask(self, request: dict[str, Any], timeout: float = DEADLINE_S) -> Finding:
        """Check one case in the worker; after a hang the worker is unusable."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            reply = json.loads(self._answers.get(timeout=timeout) or "null")
        except queue.Empty:
            return self._fail(request, f"{NO_ANSWER} in {timeout:g} s")
        except OSError:
            reply = None
        if reply is None:
            return self._fail(request, f"the process ended: {self._exit_code()}")
        growth_nbytes = reply.pop("grown")
        self._growth_nbytes += growth_nbytes
        max_growth_nbytes = (
            MAX_REFUSAL_GROWTH_NBYTES
            if reply["outcome"] == "refused"
            else MAX_READ_GROWTH_NBYTES
        )
        if not reply["broken"] and growth_nbytes > max_growth_nbytes:
            reply |= {
                "outcome": "broken",
                "broken": f"grew by {growth_nbytes >> 20} MiB",
            }
        path = self._case_path() if reply["broken"] else None
        return Finding(request, raw=path.read_bytes() if path else b"", **reply)

    @property
    def needs_replacement(self) -> bool:
        return self._has_failed or self._growth_nbytes > REPLACE_AFTER_NBYTES

    def reset_growth(self) -> None:
        """Reset the growth: modules loaded so far are not counted."""
        self._growth_nbytes = 0

    def close(self) -> None:
        """End the process and take its folder away."""
        self._process.kill()
        self._process.wait(timeout=30)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # a request that a dead worker never read
            self._process.stdin.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def _exit_code(self) -> int | None:
        """Return the exit code of a process whose output has ended."""
        try:
            return self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            return None

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._answers.put(line)
        self._answers.put("")  # the process ended

    def _case_path(self) -> Path | None:
        """Return the file being read; outputs beside it have the stem `out`."""
        candidates = [
            path
            for path in self.home.iterdir()
            if path.stem not in OUTPUT_STEMS
            and not path.name.startswith(NEIGHBOR_PREFIXES)
        ]
        return candidates[0] if candidates else None

    def _fail(self, request: dict[str, Any], reason: str) -> Finding:
        path = self._case_path()
        kind = path.suffix[1:] if path else "?"
        raw = path.read_bytes() if path else b""
        self._has_failed = True
        return Finding(request, kind, broken=reason, raw=raw)


class _WorkerSlot:
    """One worker at a time, replaced when it is no longer usable."""

    def __init__(self, shared: Path) -> None:
        self._shared = shared
        self._worker: FuzzWorker | None = None

    def check_case(self, request: dict[str, Any]) -> Finding:
        if self._worker is None:
            self._worker = FuzzWorker(self._shared)
            warm_up(self._worker, self._shared)
        finding = self._worker.ask(request)
        if self._worker.needs_replacement:
            self.close()
        return finding

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None


def run_workers(
    shared: Path,
    requests: Iterator[dict[str, Any]],
    on_finding: Callable[[Finding], None],
    workers: int,
) -> None:
    """Check all requests with that many workers at a time; call `on_finding` for each,
    one at a time.
    """
    lock = threading.Lock()

    def serve() -> None:
        slot = _WorkerSlot(shared)
        try:
            while True:
                with lock:
                    request = next(requests, None)
                if request is None:
                    return
                finding = slot.check_case(request)
                if finding.broken.startswith(NO_ANSWER):
                    # A machine that stood still looks the same: a hang hangs again.
                    finding = slot.check_case(request)
                with lock:
                    on_finding(finding)
        finally:
            slot.close()

    threads = [threading.Thread(target=serve) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():  # so that Ctrl-C is heard
            thread.join(timeout=0.5)


def warm_up(worker: FuzzWorker, shared: Path) -> None:
    """Let the worker load all that reading, tables and pictures need, which does not
    count as growth.
    """
    for path in sorted(shared.glob("seeds/*")):
        options = {
            "fs": seed_rate(path.name),
            "cli": "plot" if path.name == "plain.edf" else "",
        }
        worker.ask({"path": str(path), **options}, START_TIMEOUT_S)
    worker.reset_growth()
