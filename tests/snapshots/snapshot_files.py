"""Stored snapshots: each part is generated in its own process, stored as files, and
compared with them.
"""

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
    "names": ("public_names", "record"),
    "commands": ("command_outputs", "record"),
    "decisions": ("placement_decisions", "record"),
    "decisions-compiled": ("placement_decisions", "record_compiled"),
    "kernels-wgsl": ("kernel_texts", "record_wgsl"),
    "kernels-llvm": ("kernel_texts", "record_llvm"),
    "kernels-cuda": ("kernel_texts", "record_cuda"),
    "kernels-wasm": ("kernel_texts", "record_wasm"),
}
"""Module and function that generate each part: the text of each file."""
LLVM_PARTS = ("decisions-compiled", "kernels-llvm")
PACKED_SUFFIX = ".xz"
"""Suffix of files that are stored compressed."""
RULE = "=" * 20
"""Start of the line above a kernel's text, which holds its hash."""
MAX_DIFF_LINES = 200
"""Number of diff lines that are shown."""
REL_TOLERANCE = 1.1e-4
"""Relative difference up to which fractions count as equal: the fifth digit may be
rounded either way on another processor.
"""
FRACTION = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[+-]?\d+)?(?![\w.])")
TIMEOUT_S = 600.0


def generate(part: str) -> dict[str, str]:
    """Generate a part in a new process; return the text of each of its files."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "made.json"
        command = (sys.executable, "-m", "tests.snapshots", "--json-of", part)
        result = subprocess.run(
            [*command, "--to", str(target)],
            cwd=ROOT,
            env=_environment(folder),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=TIMEOUT_S,
            check=False,
        )
        if result.returncode:
            raise RuntimeError(f"recording {part} failed:\n{result.stderr[-4000:]}")
        files: dict[str, str] = json.loads(target.read_text("utf-8"))
    return files


def generate_in_process(part: str, target: str) -> None:
    """Generate a part in this process and write it to a file."""
    module, function = PARTS[part]
    files = getattr(import_module(f"tests.snapshots.{module}"), function)()
    Path(target).write_text(json.dumps(files), "utf-8")


def _environment(folder: str) -> dict[str, str]:
    """Return the environment without what a user may have set for rlxweb."""
    variables = {
        k: v for k, v in os.environ.items() if not k.startswith(("RLX_", "PYTEST"))
    }
    return variables | {
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


def load_stored(part: str) -> dict[str, str]:
    """Return the committed files of a part."""
    files = {}
    for path in sorted(FOLDER.glob("*")):
        if part_of_file(path.name) == part:
            data = path.read_bytes()
            data = lzma.decompress(data) if path.suffix == PACKED_SUFFIX else data
            files[path.name] = data.decode()
    return files


def part_of_file(name: str) -> str:
    """Return the part that a file belongs to: the longest one that its name begins
    with.
    """
    return max((p for p in PARTS if name.startswith(p)), key=len, default="")


def write(part: str, files: Mapping[str, str]) -> None:
    """Store a part in place of its previous files."""
    FOLDER.mkdir(exist_ok=True)
    previous = load_stored(part)
    for name in previous.keys() - files.keys():
        (FOLDER / name).unlink()
    for name, text in files.items():
        if previous.get(name) == text:
            continue
        data = text.encode()
        if name.endswith(PACKED_SUFFIX):
            data = lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
        (FOLDER / name).write_bytes(data)


def differences(part: str, current: Mapping[str, str]) -> str:
    """Return the lines in which a part differs from the stored one; "" if there are
    none.
    """
    previous = load_stored(part)
    diff = []
    names = previous.keys() | current.keys()
    for name in sorted(
        names, key=lambda file_name: (not file_name.endswith(PACKED_SUFFIX), file_name)
    ):
        old, new = previous.get(name, ""), current.get(name, "")
        if old == new:
            continue
        if name.endswith(PACKED_SUFFIX):
            lines = list(_diff_kernels(name, old, new))
        else:
            lines = list(_diff_lines(name, old, new))
        if lines:
            diff += lines if len(lines) <= MAX_DIFF_LINES else _truncate_diff(lines)
    return "\n".join(diff)


def _truncate_diff(lines: list[str]) -> list[str]:
    return [*lines[:MAX_DIFF_LINES], f"… {len(lines) - MAX_DIFF_LINES} lines more"]


def _diff_lines(name: str, old: str, new: str) -> Iterator[str]:
    """Yield a diff in which lines with nearly equal fractions count as equal."""
    old_lines, new_lines = old.split("\n"), new.split("\n")
    if len(old_lines) == len(new_lines):
        pairs = zip(old_lines, new_lines, strict=True)
        new_lines = [
            old_line if _is_same(old_line, new_line) else new_line
            for old_line, new_line in pairs
        ]
    n = 0 if name.startswith("kernels") else 2  # a case a line
    yield from difflib.unified_diff(
        old_lines, new_lines, name, f"{name}, now", lineterm="", n=n
    )


def _is_same(old: str, new: str) -> bool:
    if FRACTION.sub("#", old) != FRACTION.sub("#", new):
        return False
    pairs = zip(FRACTION.findall(old), FRACTION.findall(new), strict=True)
    return all(
        a == b or math.isclose(float(a), float(b), rel_tol=REL_TOLERANCE)
        for a, b in pairs
    )


def _diff_kernels(name: str, old: str, new: str) -> Iterator[str]:
    """Yield diffs of kernels, each new one against the most similar old one.

    A change that many kernels have in common is shown once.
    """
    old_texts, new_texts = kernel_texts(old), kernel_texts(new)
    removed = {key: old_texts[key] for key in old_texts.keys() - new_texts.keys()}
    added = {key: new_texts[key] for key in new_texts.keys() - old_texts.keys()}
    if not removed and not added:
        return
    yield f"{name}: {len(removed)} kernels are gone, {len(added)} are new"
    removed_lines = {key: set(text.splitlines()) for key, text in removed.items()}
    shown: dict[tuple[str, ...], list[str]] = {}
    counts: Counter[tuple[str, ...]] = Counter()
    unmatched = []
    for key, text in sorted(added.items()):
        old_key = _most_similar(text, removed_lines)
        if old_key is None:
            unmatched.append(f"+++ {key} is new, {len(text.splitlines())} lines")
            continue
        del removed_lines[old_key]
        pair = removed[old_key].splitlines(), text.splitlines()
        lines = list(difflib.unified_diff(*pair, old_key, key, lineterm="", n=2))
        change = tuple(line for line in lines[2:] if line[0] in "+-")
        counts[change] += 1
        shown.setdefault(change, lines)
    for change, lines in shown.items():
        yield from lines
        if counts[change] > 1:
            yield f"… the same in {counts[change] - 1} kernels more"
    yield from unmatched
    yield from (f"--- {key} is gone" for key in sorted(removed_lines))


def _most_similar(text: str, others: Mapping[str, set[str]]) -> str | None:
    """Return the key of the lines that a text shares most of, if it shares at least
    half.
    """
    lines = set(text.splitlines())
    shares = {key: len(lines & other) for key, other in others.items()}
    best = max(sorted(shares), key=shares.__getitem__, default=None)
    return best if best is not None and 2 * shares[best] >= len(lines) else None


def kernel_texts(packed: str) -> dict[str, str]:
    """Return the texts of kernels by their hash."""
    texts = {}
    for part in packed.split(f"\n{RULE} ")[1:]:
        key, _, text = part.partition("\n")
        texts[key] = text
    return texts
