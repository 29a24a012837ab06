"""Process that reads mutated files: `python -m tests.fuzz.worker`.

Takes lines of JSON on its standard input, each the seed of a run and the number of a
case (or a file to replay), and answers each with one line: what became of it and how
much memory that took. It may use so much memory and no more; who started it sees to the
time.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.update(RLX_CALIBRATION="off", OMP_NUM_THREADS="1", MPLBACKEND="agg")

from tests.fuzz.cases import KINDS, FuzzCase, make_case
from tests.fuzz.library_format_seeds import companion_files
from tests.fuzz.oracle import check_case, clear_folder, write_case

MEMORY_NBYTES = 4 << 30


def main() -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed must not get between the answers
    limit_memory()
    folder = Path(sys.argv[1])
    seeds = {kind: sorted(folder.glob(f"seeds/*.{kind}")) for kind in KINDS}
    home = Path(sys.argv[2])
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line), seeds, home)) + "\n")
        answers.flush()


def answer(
    request: Mapping[str, Any], seeds: Mapping[str, list[Path]], home: Path
) -> dict[str, Any]:
    """Make the file, read it, and return the outcome."""
    clear_folder(
        home
    )  # a process that ends while it makes the case leaves no older one
    if "path" in request:
        path = Path(request["path"])
        kind = path.suffix[1:]
        options = {"fs": None, "channels": None, "layout": None, "cli": "plot"}
        options |= {"extra": [], "stem": path.stem if path.suffix == ".zip" else "case"}
        options |= {name: request[name] for name in options if name in request}
        extra = tuple(options.pop("extra"))
        companions = request.get("companions")
        if companions is None:
            companions = companion_files(path.name)
        else:
            companions = {
                name: base64.b64decode(content) for name, content in companions.items()
            }
        raw = path.read_bytes()
        case = FuzzCase(
            kind, path.name, raw, **options, extra=extra, companions=companions
        )
    else:
        case = make_case(request["seed"], request["at"], seeds)
    path = write_case(case, home)
    before = peak_memory_nbytes()
    verdict = check_case(path, case)
    return {
        "kind": case.kind,
        "origin": case.origin,
        "outcome": verdict.outcome,
        "broken": verdict.broken,
        "grown": peak_memory_nbytes() - before,
        "how": {
            "fs": case.fs,
            "channels": case.channels,
            "layout": case.layout,
            "cli": case.cli,
            "extra": case.extra,
            "stem": case.stem,
            "companions": {
                name: base64.b64encode(content).decode()
                for name, content in case.companions.items()
            },
        },
    }


def limit_memory() -> None:
    """Limit the memory of this process, so that a greedy file raises an error instead
    of exhausting the machine.
    """
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_NBYTES, MEMORY_NBYTES))


def peak_memory_nbytes() -> int:
    """Return the peak memory of this process; 0 where the system does not report it."""
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    main()
