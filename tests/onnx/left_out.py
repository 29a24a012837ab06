"""Which of ONNX's cases are left out and why: three lists, read and written here.

`left_out.txt` says what is refused everywhere, `left_out_on_gpus.txt` what else WGSL
adapters refuse, `left_out_without_f16.txt` what those among them without halves do. A
reason stands at the start of a line, the cases under it indented. `python -m
tests.onnx.left_out` runs all cases and writes the lists anew.
"""

from __future__ import annotations

import sys
import textwrap
import warnings
from pathlib import Path

from tests.onnx.cases import Case, cases, outcome

HERE = Path(__file__).parent
EVERYWHERE = HERE / "left_out.txt"
ON_GPUS = HERE / "left_out_on_gpus.txt"
WITHOUT_F16 = HERE / "left_out_without_f16.txt"
HAS_F16 = "lavapipe"


def listed(path: Path) -> dict[str, str]:
    """The reason of each case in a list."""
    found: dict[str, str] = {}
    reason = ""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith(" "):
            found.update(dict.fromkeys(line.split(), reason))
        elif line and not line.startswith("#"):
            reason = line
    return found


def expected(device: str) -> dict[str, str]:
    """The reason of each case that a device refuses."""
    if device == "cpu":
        return listed(EVERYWHERE)
    more = {} if device == HAS_F16 else listed(WITHOUT_F16)
    return {**listed(EVERYWHERE), **listed(ON_GPUS), **more}


def refused(device: str) -> dict[str, str]:
    """What a device refuses now; raises where a case comes out wrong."""
    found = {}
    for case in cases():
        now = outcome(case, device)
        if now.what == "wrong":
            raise SystemExit(f"{case.name} is wrong on {device}: {now.why}")
        if now.what == "refused":
            found[case.name] = now.reason
    return found


def write(path: Path, reasons: dict[str, str], head: str) -> None:
    """A list, its reasons and their cases in order."""
    groups: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        groups.setdefault(reason, []).append(name)
    lines = [f"# {head}: {len(reasons)}"]
    for reason in sorted(groups):
        names = " ".join(sorted(groups[reason]))
        text = textwrap.wrap(names, 84, break_on_hyphens=False, break_long_words=False)
        lines += [reason, *(f"    {part}" for part in text)]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def complaint(case: Case, device: str, reasons: dict[str, str]) -> str:
    """What is not as the lists say; "" where all is."""
    now, listed_as = outcome(case, device), reasons.get(case.name)
    if now.what == "wrong":
        return f"{case.name} is wrong: {now.why}"
    if now.what == "right" and listed_as is not None:
        return f"{case.name} is right, and listed as left out: {listed_as}"
    if now.what == "refused" and listed_as is None:
        return f"{case.name} is refused, and not listed: {now.why}"
    if now.what == "refused" and now.reason != listed_as:
        return f"{case.name} is listed as left out for {listed_as!r}, not {now.why}"
    return ""


def main() -> None:
    """Write the lists."""
    warnings.simplefilter("ignore")
    everywhere = refused("cpu")
    write(EVERYWHERE, everywhere, "refused on every device")
    print(f"{len(cases()) - len(everywhere)} of {len(cases())} right on the CPU")
    more = {n: r for n, r in refused(HAS_F16).items() if n not in everywhere}
    write(ON_GPUS, more, "refused by WGSL adapters beyond that")
    print(f"{len(cases()) - len(everywhere) - len(more)} right on {HAS_F16}")
    known = {**everywhere, **more}
    halves = {n: r for n, r in refused("opengl").items() if known.get(n) != r}
    write(WITHOUT_F16, halves, "refused by those without f16, or for that reason")
    print(f"{len(cases()) - len({**known, **halves})} right on opengl")


if __name__ == "__main__":
    sys.exit(main())
