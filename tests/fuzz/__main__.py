"""`python -m tests.fuzz`: mutate files for some minutes, or replay saved ones.

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
from tests.fuzz.seed_files import write_seeds
from tests.fuzz.worker_pool import ROOT, Finding, run_workers

OUTCOMES = ("read", "warned", "refused", "broken")
SCHEMA = "rlxweb.fuzz/1"


def main(args: Sequence[str] | None = None) -> int:
    """Return 0 when every file was read or rejected as it should be, else 1."""
    options = make_parser().parse_args(args)
    console = Console(stderr=True)
    seed = (
        random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    )
    with tempfile.TemporaryDirectory(prefix="rlxweb-fuzz-") as name:
        shared = Path(name)
        (shared / "seeds").mkdir()
        write_seeds(shared / "seeds")
        started_at = time.monotonic()
        if options.replay:
            findings = replay_files(options.replay, shared, options.workers)
            for finding in findings:
                outcome = finding.broken or finding.outcome
                where = finding.request["path"]
                console.print(
                    f"{where}: {outcome}", markup=False, highlight=False, soft_wrap=True
                )
        else:
            console.print(f"seed {seed}")
            findings = run_fuzzing(options, seed, shared, console)
        seconds = time.monotonic() - started_at
    broken = [finding for finding in findings if finding.broken]
    if not options.replay:
        console.print(summary_table(findings))
    console.print(
        f"{len(findings)} files in {seconds:.0f} s, {len(broken)} treated wrong"
        + (f"; kept in {options.keep}" if broken and not options.replay else "")
    )
    if options.json:
        json.dump(json_document(findings, seed, seconds), sys.stdout, indent=2)
        print()
    return int(bool(broken))


def make_parser() -> argparse.ArgumentParser:
    """Return the option parser of `./dev fuzz`."""
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (10)")
    parser.add_argument("--files", type=int, help="stop after so many files")
    parser.add_argument("--seed", type=int, help="of the run; by default a new one")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes"
    )
    parser.add_argument(
        "--json", action="store_true", help="the counts as JSON on stdout"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        default=ROOT / "build" / "fuzz",
        help="folder for files that were treated wrong (build/fuzz)",
    )
    parser.add_argument(
        "--replay", type=Path, nargs="+", metavar="FILE", help="kept files"
    )
    return parser


def run_fuzzing(
    options: argparse.Namespace, seed: int, shared: Path, console: Console
) -> list[Finding]:
    """Run cases 0, 1, 2 … until the time or the number of files is reached."""
    findings: list[Finding] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]} files, {task.fields[bad]} wrong"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("fuzzing", total=1.0, done=0, bad=0)
        started_at = time.monotonic()

        def make_requests() -> Iterator[dict[str, Any]]:
            for index in (
                itertools.count() if options.files is None else range(options.files)
            ):
                time_fraction = (time.monotonic() - started_at) / (60 * options.minutes)
                file_fraction = index / options.files if options.files else 0.0
                bar.update(task, completed=max(time_fraction, file_fraction))
                if time_fraction >= 1:
                    return
                yield {"seed": seed, "at": index}

        def on_finding(finding: Finding) -> None:
            findings.append(finding)
            bad = bar.tasks[0].fields["bad"] + bool(finding.broken)
            bar.update(task, done=len(findings), bad=bad)
            if finding.broken:  # kept at once: the run may be stopped any time
                line = f"{save_finding(finding, options.keep)}: {_last_line(finding)}"
                console.print(line, style="red", markup=False, soft_wrap=True)

        run_workers(shared, make_requests(), on_finding, options.workers)
    return findings


def replay_files(paths: Sequence[Path], shared: Path, workers: int) -> list[Finding]:
    """Replay files as they are, opened as the note beside them says."""
    findings: list[Finding] = []

    def make_requests() -> Iterator[dict[str, Any]]:
        for path in paths:
            note = path.with_suffix(".json")
            options = json.loads(note.read_text())["how"] if note.exists() else {}
            yield {"path": str(path.resolve()), **options}

    run_workers(shared, make_requests(), findings.append, min(workers, len(paths)))
    return findings


def save_finding(finding: Finding, folder: Path) -> Path:
    """Save the mutated file, and beside it how it came about and what is wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{finding.kind}-{finding.request['seed']}-{finding.request['at']}"
    path = folder / f"{stem}.{finding.kind}"
    path.write_bytes(finding.raw)
    note = {"how": finding.how, "origin": finding.origin, "broken": finding.broken}
    text = json.dumps({**finding.request, **note}, indent=2)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    return path


def outcome_counts(findings: Sequence[Finding]) -> dict[str, Counter[str]]:
    """Count the outcomes of each format."""
    return {
        file_kind: Counter(f.outcome for f in findings if f.kind == file_kind)
        for file_kind in (*KINDS, "?")
        if any(f.kind == file_kind for f in findings)
    }


def _last_line(finding: Finding) -> str:
    """Return the exception line at the end of a traceback."""
    return finding.broken.strip().splitlines()[-1][:300]


def summary_table(findings: Sequence[Finding]) -> Table:
    """Return the outcome counts as a table."""
    table = Table("format", *OUTCOMES, "files")
    for kind, outcome_counter in outcome_counts(findings).items():
        table.add_row(
            kind,
            *(str(outcome_counter[outcome]) for outcome in OUTCOMES),
            str(outcome_counter.total()),
        )
    return table


def json_document(
    findings: Sequence[Finding], seed: int, seconds: float
) -> dict[str, Any]:
    """Return the run as plain data."""
    return {
        "schema": SCHEMA,
        "seed": seed,
        "seconds": round(seconds, 1),
        "files": len(findings),
        "counts": {kind: dict(ends) for kind, ends in outcome_counts(findings).items()},
        "broken": [
            {**f.request, "kind": f.kind, "why": _last_line(f)}
            for f in findings
            if f.broken
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
