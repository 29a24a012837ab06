"""The process in which mutated files are read: `python -m tests.fuzz.worker`.

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

from tests.fuzz.cases import KINDS, Case, make_case
from tests.fuzz.demands import clear, judge, write_case
from tests.fuzz.seeds_of_libraries import companions_of

MEMORY_NBYTES = 4 << 30


def main() -> None:
    """Answer until the input ends."""
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
    asked: Mapping[str, Any], seeds: Mapping[str, list[Path]], home: Path
) -> dict[str, Any]:
    """Make the file, treat it, and say what came of it."""
    clear(home)  # a process that ends while it makes the case leaves no older one
    if "path" in asked:
        path = Path(asked["path"])
        kind = path.suffix[1:]
        how = {"fs": None, "channels": None, "layout": None, "cli": "plot"}
        how |= {"extra": [], "stem": path.stem if path.suffix == ".zip" else "case"}
        how |= {name: asked[name] for name in how if name in asked}
        extra = tuple(how.pop("extra"))
        others = asked.get("companions")
        if others is None:
            others = companions_of(path.name)
        else:
            others = {name: base64.b64decode(one) for name, one in others.items()}
        raw = path.read_bytes()
        case = Case(kind, path.name, raw, **how, extra=extra, companions=others)
    else:
        case = make_case(asked["seed"], asked["at"], seeds)
    path = write_case(case, home)
    before = highest_nbytes()
    verdict = judge(path, case)
    return {
        "kind": case.kind,
        "origin": case.origin,
        "outcome": verdict.outcome,
        "broken": verdict.broken,
        "grown": highest_nbytes() - before,
        "how": {
            "fs": case.fs,
            "channels": case.channels,
            "layout": case.layout,
            "cli": case.cli,
            "extra": case.extra,
            "stem": case.stem,
            "companions": {
                name: base64.b64encode(one).decode()
                for name, one in case.companions.items()
            },
        },
    }


def limit_memory() -> None:
    """A file that takes all there is ends in an error, not in a dead machine."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_NBYTES, MEMORY_NBYTES))


def highest_nbytes() -> int:
    """The most memory this process ever used; 0 where the system does not say."""
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    main()
