"""Compare the stored snapshots with the present output, or write new ones.

    python -m tests.snapshots [PART …]        print what differs, and exit 1 then
    python -m tests.snapshots write [PART …]  record it

Parts: kernels (or kernels-wgsl …), names, commands, decisions. Each is made in a
process of its own, so that nothing which was compiled or opened before hides anything.
"""

from __future__ import annotations

import argparse
import sys

from tests.snapshots.snapshot_files import (
    PARTS,
    differences,
    generate,
    generate_in_process,
    write,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.snapshots")
    parser.add_argument("words", nargs="*", metavar="write | PART")
    parser.add_argument("--json-of", metavar="PART", help="make one part in here")
    parser.add_argument("--to", metavar="FILE", help="where --json-of writes")
    options = parser.parse_args()
    if options.json_of:
        generate_in_process(options.json_of, options.to)
        return 0
    is_write = options.words[:1] == ["write"]
    code = 0
    for part in _selected_parts(parser, options.words[is_write:]):
        print(f"{part} …", file=sys.stderr, flush=True)
        files = generate(part)
        if is_write:
            write(part, files)
            continue
        diff = differences(part, files)
        if diff:
            code = 1
            print(f"{part} differs:\n{diff}", flush=True)
    return code


def _selected_parts(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    for word in words:
        if not any(_is_part(part, word) for part in PARTS):
            parser.error(f"{word!r} is no part; there are {', '.join(PARTS)}")
    return [p for p in PARTS if not words or any(_is_part(p, word) for word in words)]


def _is_part(part: str, word: str) -> bool:
    return part == word or part.startswith(f"{word}-")


if __name__ == "__main__":
    sys.exit(main())
