"""`python -m tests.fuzz`: mutate files for some minutes, or replay some.

`./dev fuzz --minutes 10` is the way in. Exit 1 when a file was treated otherwise than
`demands` asks; each such file is kept with what led to it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.fuzz.cases import KINDS
from tests.fuzz.fleet import ROOT, Finding, run_fleet
from tests.fuzz.seeds import write_seeds

OUTCOMES = ("read", "warned", "refused", "broken")
SCHEMA = "rlxweb.fuzz/1"


def main(args: Sequence[str] | None = None) -> int:
    """0 when every file was read or refused as it should be, else 1."""
    asked = parser().parse_args(args)
    console = Console(stderr=True)
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    with tempfile.TemporaryDirectory(prefix="rlxweb-fuzz-") as name:
        shared = Path(name)
        (shared / "seeds").mkdir()
        write_seeds(shared / "seeds")
        begun = time.monotonic()
        if asked.replay:
            findings = replayed(asked.replay, shared, asked.workers)
            for finding in findings:
                said = finding.broken or finding.outcome
                where = finding.asked["path"]
                console.print(
                    f"{where}: {said}", markup=False, highlight=False, soft_wrap=True
                )
        else:
            console.print(f"seed {seed}")
            findings = fuzzed(asked, seed, shared, console)
        seconds = time.monotonic() - begun
    broken = [finding for finding in findings if finding.broken]
    if not asked.replay:
        console.print(summary(findings))
    console.print(
        f"{len(findings)} files in {seconds:.0f} s, {len(broken)} treated wrong"
        + (f"; kept in {asked.keep}" if broken and not asked.replay else "")
    )
    if asked.json:
        json.dump(document(findings, seed, seconds), sys.stdout, indent=2)
        print()
    return int(bool(broken))


def parser() -> argparse.ArgumentParser:
    """The options of `./dev fuzz`."""
    made = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    made.add_argument("--minutes", type=float, default=10.0, help="how long (10)")
    made.add_argument("--files", type=int, help="stop after so many files")
    made.add_argument("--seed", type=int, help="of the run; by default a new one")
    made.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes"
    )
    made.add_argument(
        "--json", action="store_true", help="the counts as JSON on stdout"
    )
    made.add_argument(
        "--keep",
        type=Path,
        default=ROOT / "build" / "fuzz",
        help="folder for files that were treated wrong (build/fuzz)",
    )
    made.add_argument(
        "--replay", type=Path, nargs="+", metavar="FILE", help="kept files"
    )
    return made


def fuzzed(
    asked: argparse.Namespace, seed: int, shared: Path, console: Console
) -> list[Finding]:
    """Cases 0, 1, 2 … of a run, until its time or its number of files is over."""
    findings: list[Finding] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]} files, {task.fields[bad]} wrong"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("fuzzing", total=1.0, done=0, bad=0)
        begun = time.monotonic()

        def work() -> Iterator[dict[str, Any]]:
            for at in itertools.count() if asked.files is None else range(asked.files):
                spent = (time.monotonic() - begun) / (60 * asked.minutes)
                by_number = at / asked.files if asked.files else 0.0
                bar.update(task, completed=max(spent, by_number))
                if spent >= 1:
                    return
                yield {"seed": seed, "at": at}

        def heard(finding: Finding) -> None:
            findings.append(finding)
            bad = bar.tasks[0].fields["bad"] + bool(finding.broken)
            bar.update(task, done=len(findings), bad=bad)
            if finding.broken:  # kept at once: the run may be stopped any time
                said = f"{keep(finding, asked.keep)}: {_last_line(finding)}"
                console.print(said, style="red", markup=False, soft_wrap=True)

        run_fleet(shared, work(), heard, asked.workers)
    return findings


def replayed(paths: Sequence[Path], shared: Path, workers: int) -> list[Finding]:
    """Files as they are, opened as the note beside them says."""
    findings: list[Finding] = []

    def work() -> Iterator[dict[str, Any]]:
        for path in paths:
            note = path.with_suffix(".json")
            how = json.loads(note.read_text())["how"] if note.exists() else {}
            yield {"path": str(path.resolve()), **how}

    run_fleet(shared, work(), findings.append, min(workers, len(paths)))
    return findings


def keep(finding: Finding, folder: Path) -> Path:
    """The file, kept, and beside it how it came about and what is wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{finding.kind}-{finding.asked['seed']}-{finding.asked['at']}"
    kept = folder / f"{stem}.{finding.kind}"
    kept.write_bytes(finding.raw)
    note = {"how": finding.how, "origin": finding.origin, "broken": finding.broken}
    text = json.dumps({**finding.asked, **note}, indent=2)
    kept.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    return kept


def counts(findings: Sequence[Finding]) -> dict[str, Counter[str]]:
    """How many of each format came to each end."""
    return {
        kind: Counter(f.outcome for f in findings if f.kind == kind)
        for kind in (*KINDS, "?")
        if any(f.kind == kind for f in findings)
    }


def _last_line(finding: Finding) -> str:
    """The exception at the end of a traceback."""
    return finding.broken.strip().splitlines()[-1][:300]


def summary(findings: Sequence[Finding]) -> Table:
    """The same as a table."""
    table = Table("format", *OUTCOMES, "files")
    for kind, ends in counts(findings).items():
        table.add_row(kind, *(str(ends[one]) for one in OUTCOMES), str(ends.total()))
    return table


def document(findings: Sequence[Finding], seed: int, seconds: float) -> dict[str, Any]:
    """The run as plain data."""
    return {
        "schema": SCHEMA,
        "seed": seed,
        "seconds": round(seconds, 1),
        "files": len(findings),
        "counts": {kind: dict(ends) for kind, ends in counts(findings).items()},
        "broken": [
            {**f.asked, "kind": f.kind, "why": _last_line(f)}
            for f in findings
            if f.broken
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
