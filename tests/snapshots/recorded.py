"""Make each part in a process of its own, keep it as files, and tell what differs."""

from __future__ import annotations

import difflib
import json
import lzma
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent / "recorded"
PARTS: Mapping[str, tuple[str, str]] = {
    "names": ("names", "record"),
    "commands": ("commands", "record"),
    "decisions": ("decisions", "record"),
    "decisions-compiled": ("decisions", "record_compiled"),
    "kernels-wgsl": ("kernels", "record_wgsl"),
    "kernels-llvm": ("kernels", "record_llvm"),
    "kernels-cuda": ("kernels", "record_cuda"),
    "kernels-wasm": ("kernels", "record_wasm"),
}
"""Module and function that make a part: the text of each file."""
NEED_LLVM = ("decisions-compiled", "kernels-llvm")
PACKED = ".xz"
"""Ends the names of files that are stored compressed."""
RULE = "=" * 20
"""Begins the line above a kernel's text, which has its hash."""
LONGEST = 200
"""Lines of a difference that are shown."""
WITHIN = 1.1e-4
"""Fractions that are nearer, relative to the larger one, are the same: the fifth digit
may be rounded either way on another processor."""
NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[+-]?\d+)?(?![\w.])")
MOST_S = 600.0


def made(part: str) -> dict[str, str]:
    """Return what a part is now: the text of each of its files."""
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "made.json"
        command = (sys.executable, "-m", "tests.snapshots", "--json-of", part)
        done = subprocess.run(
            [*command, "--to", str(to)],
            cwd=ROOT,
            env=_environment(folder),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=MOST_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"recording {part} failed:\n{done.stderr[-4000:]}")
        files: dict[str, str] = json.loads(to.read_text("utf-8"))
    return files


def make_here(part: str, to: str) -> None:
    """Make a part in this process and write it to a file."""
    module, function = PARTS[part]
    files = getattr(import_module(f"tests.snapshots.{module}"), function)()
    Path(to).write_text(json.dumps(files), "utf-8")


def _environment(folder: str) -> dict[str, str]:
    """Return the environment without what a user may have set for rlxweb."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RLX_", "PYTEST"))}
    return kept | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTHONUTF8": "1",
        "PYTHONWARNINGS": "",
        "RLX_CACHE_DIR": str(Path(folder) / "cache"),
        "RLX_CALIBRATION": "off",
        "RLX_FAST": "off",
        "COLUMNS": "80",
        "LINES": "24",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "TZ": "UTC",
    }


def stored(part: str) -> dict[str, str]:
    """Return what is committed of a part."""
    found = {}
    for path in sorted(FOLDER.glob("*")):
        if owner(path.name) == part:
            data = path.read_bytes()
            data = lzma.decompress(data) if path.suffix == PACKED else data
            found[path.name] = data.decode()
    return found


def owner(name: str) -> str:
    """Return the part that a file belongs to: the longest that its name begins with."""
    return max((p for p in PARTS if name.startswith(p)), key=len, default="")


def write(part: str, files: Mapping[str, str]) -> None:
    """Store a part in place of what was stored of it."""
    FOLDER.mkdir(exist_ok=True)
    before = stored(part)
    for name in before.keys() - files.keys():
        (FOLDER / name).unlink()
    for name, text in files.items():
        if before.get(name) == text:
            continue
        data = text.encode()
        if name.endswith(PACKED):
            data = lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
        (FOLDER / name).write_bytes(data)


def differences(part: str, now: Mapping[str, str]) -> str:
    """Return in which lines a part differs from what is stored; "" where in none."""
    before = stored(part)
    found = []
    names = before.keys() | now.keys()
    for name in sorted(names, key=lambda one: (not one.endswith(PACKED), one)):
        old, new = before.get(name, ""), now.get(name, "")
        if old == new:
            continue
        if name.endswith(PACKED):
            lines = list(_texts_differ(name, old, new))
        else:
            lines = list(_lines_differ(name, old, new))
        if lines:
            found += lines if len(lines) <= LONGEST else _bounded(lines)
    return "\n".join(found)


def _bounded(lines: list[str]) -> list[str]:
    return [*lines[:LONGEST], f"… {len(lines) - LONGEST} lines more"]


def _lines_differ(name: str, old: str, new: str) -> Iterator[str]:
    """Yield a diff in which lines with nearly equal fractions count as equal."""
    olds, news = old.split("\n"), new.split("\n")
    if len(olds) == len(news):
        pairs = zip(olds, news, strict=True)
        news = [was if _is_same(was, now) else now for was, now in pairs]
    n = 0 if name.startswith("kernels") else 2  # a case a line
    yield from difflib.unified_diff(olds, news, name, f"{name}, now", lineterm="", n=n)


def _is_same(old: str, new: str) -> bool:
    if NUMBER.sub("#", old) != NUMBER.sub("#", new):
        return False
    pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=True)
    return all(
        a == b or math.isclose(float(a), float(b), rel_tol=WITHIN) for a, b in pairs
    )


def _texts_differ(name: str, old: str, new: str) -> Iterator[str]:
    """Yield diffs of kernels, each new one beside the old one that is nearest.

    A change that many kernels have in common is shown once.
    """
    olds, news = kernel_texts(old), kernel_texts(new)
    gone = {key: olds[key] for key in olds.keys() - news.keys()}
    come = {key: news[key] for key in news.keys() - olds.keys()}
    if not gone and not come:
        return
    yield f"{name}: {len(gone)} kernels are gone, {len(come)} are new"
    lines_of = {key: set(text.splitlines()) for key, text in gone.items()}
    shown: dict[tuple[str, ...], list[str]] = {}
    times: Counter[tuple[str, ...]] = Counter()
    alone = []
    for key, text in sorted(come.items()):
        was = _nearest(text, lines_of)
        if was is None:
            alone.append(f"+++ {key} is new, {len(text.splitlines())} lines")
            continue
        del lines_of[was]
        pair = gone[was].splitlines(), text.splitlines()
        lines = list(difflib.unified_diff(*pair, was, key, lineterm="", n=2))
        change = tuple(line for line in lines[2:] if line[0] in "+-")
        times[change] += 1
        shown.setdefault(change, lines)
    for change, lines in shown.items():
        yield from lines
        if times[change] > 1:
            yield f"… the same in {times[change] - 1} kernels more"
    yield from alone
    yield from (f"--- {key} is gone" for key in sorted(lines_of))


def _nearest(text: str, others: Mapping[str, set[str]]) -> str | None:
    """Return the key of the lines that a text shares most of, and at least half."""
    lines = set(text.splitlines())
    shares = {key: len(lines & other) for key, other in others.items()}
    best = max(sorted(shares), key=shares.__getitem__, default=None)
    return best if best is not None and 2 * shares[best] >= len(lines) else None


def kernel_texts(packed: str) -> dict[str, str]:
    """Return the texts of kernels by their hash."""
    found = {}
    for part in packed.split(f"\n{RULE} ")[1:]:
        key, _, text = part.partition("\n")
        found[key] = text
    return found
