"""Workers that judge cases, each with a deadline, replaced when they fail.

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.demands import AROUND, OUTPUTS
from tests.fuzz.seeds import rate_of

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 20.0
"""For one file: a hundred times what a busy machine needs."""

HANG = "no answer"
START_S = 120.0
REFUSAL_NBYTES = 100 << 20
READ_NBYTES = 400 << 20
"""What a refusal and a reading may add to the memory of a process."""

TIRED_NBYTES = 50 << 20
"""A worker that grew by so much hides the growth of later files: it is replaced."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a case; `broken` says what is wrong, empty where all is well."""

    asked: dict[str, Any]
    kind: str = "?"
    origin: str = ""
    outcome: str = "broken"
    broken: str = ""
    how: dict[str, Any] = field(default_factory=dict)
    raw: bytes = b""


class Worker:
    """One process and the folder it works in."""

    def __init__(self, shared: Path, *command: str) -> None:
        command = command or (sys.executable, "-m", "tests.fuzz.worker")
        self.home = Path(tempfile.mkdtemp(prefix="worker-", dir=shared))
        self._grown = 0
        self._is_over = False
        self._answers: queue.Queue[str] = queue.Queue()
        self._process = subprocess.Popen(
            [*command, str(shared), str(self.home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            text=True,
        )
        threading.Thread(target=self._hear, daemon=True).start()

    def ask(self, asked: dict[str, Any], timeout: float = DEADLINE_S) -> Finding:
        """What becomes of a case; a worker is of no use after one that hangs."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            said = json.loads(self._answers.get(timeout=timeout) or "null")
        except queue.Empty:
            return self._failed(asked, f"{HANG} in {timeout:g} s")
        except OSError:
            said = None
        if said is None:
            return self._failed(asked, f"the process ended: {self._ended()}")
        grown = said.pop("grown")
        self._grown += grown
        most = REFUSAL_NBYTES if said["outcome"] == "refused" else READ_NBYTES
        if not said["broken"] and grown > most:
            said |= {"outcome": "broken", "broken": f"grew by {grown >> 20} MiB"}
        path = self._case() if said["broken"] else None
        return Finding(asked, raw=path.read_bytes() if path else b"", **said)

    @property
    def is_tired(self) -> bool:
        return self._is_over or self._grown > TIRED_NBYTES

    def rested(self) -> None:
        """Forget how it grew: what was loaded is loaded."""
        self._grown = 0

    def close(self) -> None:
        """End the process and take its folder away."""
        self._process.kill()
        self._process.wait(timeout=30)
        assert self._process.stdin is not None
        self._process.stdin.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def _ended(self) -> int | None:
        """Return the exit code of a process whose output has ended."""
        try:
            return self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            return None

    def _hear(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._answers.put(line)
        self._answers.put("")  # the process ended

    def _case(self) -> Path | None:
        """The file that is being read; what is written beside it is called `out`."""
        there = [
            path
            for path in self.home.iterdir()
            if path.stem not in OUTPUTS and not path.name.startswith(AROUND)
        ]
        return there[0] if there else None

    def _failed(self, asked: dict[str, Any], why: str) -> Finding:
        path = self._case()
        kind = path.suffix[1:] if path else "?"
        raw = path.read_bytes() if path else b""
        self._is_over = True
        return Finding(asked, kind, broken=why, raw=raw)


class _Crew:
    """One worker at a time, a new one when the old is of no more use."""

    def __init__(self, shared: Path) -> None:
        self._shared = shared
        self._worker: Worker | None = None

    def judge(self, asked: dict[str, Any]) -> Finding:
        if self._worker is None:
            self._worker = Worker(self._shared)
            warm_up(self._worker, self._shared)
        finding = self._worker.ask(asked)
        if self._worker.is_tired:
            self.close()
        return finding

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None


def run_fleet(
    shared: Path,
    work: Iterator[dict[str, Any]],
    heard: Callable[[Finding], None],
    workers: int,
) -> None:
    """Judge all of `work`, by so many workers at a time; `heard` is called in turn."""
    lock = threading.Lock()

    def serve() -> None:
        crew = _Crew(shared)
        try:
            while True:
                with lock:
                    asked = next(work, None)
                if asked is None:
                    return
                finding = crew.judge(asked)
                if finding.broken.startswith(HANG):
                    # A machine that stood still looks the same: a hang hangs again.
                    finding = crew.judge(asked)
                with lock:
                    heard(finding)
        finally:
            crew.close()

    threads = [threading.Thread(target=serve) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():  # so that Ctrl-C is heard
            thread.join(timeout=0.5)


def warm_up(worker: Worker, shared: Path) -> None:
    """Let it load all that reading, tables and pictures need, which is no growth."""
    for path in sorted(shared.glob("seeds/*")):
        how = {
            "fs": rate_of(path.name),
            "cli": "plot" if path.name == "plain.edf" else "",
        }
        worker.ask({"path": str(path), **how}, START_S)
    worker.rested()
