"""Lists of the ONNX cases that are refused, with reasons: read and written here.

`left_out.txt` says what is refused everywhere, `left_out_on_gpus.txt` what else WGSL
adapters refuse, `left_out_without_f16.txt` what those among them without halves do. A
reason stands at the start of a line, the cases under it indented. `python -m
tests.onnx.refused_cases` runs all cases and writes the lists anew.
"""

from __future__ import annotations

import sys
import textwrap
import warnings
from pathlib import Path

from tests.onnx.onnx_backend_cases import OnnxCase, load_cases, run_case

FOLDER = Path(__file__).parent
REFUSED_EVERYWHERE = FOLDER / "left_out.txt"
REFUSED_ON_GPUS = FOLDER / "left_out_on_gpus.txt"
REFUSED_WITHOUT_F16 = FOLDER / "left_out_without_f16.txt"
DEVICE_WITH_F16 = "lavapipe"


def read_reasons(path: Path) -> dict[str, str]:
    """Return the reason of each case in a list."""
    reasons: dict[str, str] = {}
    reason = ""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith(" "):
            reasons.update(dict.fromkeys(line.split(), reason))
        elif line and not line.startswith("#"):
            reason = line
    return reasons


def expected_reasons(device: str) -> dict[str, str]:
    """Return the reason of each case that a device refuses according to the lists."""
    if device == "cpu":
        return read_reasons(REFUSED_EVERYWHERE)
    extra_reasons = (
        {} if device == DEVICE_WITH_F16 else read_reasons(REFUSED_WITHOUT_F16)
    )
    return {
        **read_reasons(REFUSED_EVERYWHERE),
        **read_reasons(REFUSED_ON_GPUS),
        **extra_reasons,
    }


def refused_now(device: str) -> dict[str, str]:
    """Return the reason of each case that a device refuses now; raise if a case is
    wrong.
    """
    reasons = {}
    for case in load_cases():
        result = run_case(case, device)
        if result.status == "wrong":
            raise SystemExit(f"{case.name} is wrong on {device}: {result.details}")
        if result.status == "refused":
            reasons[case.name] = result.reason
    return reasons


def write_list(path: Path, reasons: dict[str, str], head: str) -> None:
    """Write a list of reasons and their cases, both sorted."""
    groups: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        groups.setdefault(reason, []).append(name)
    lines = [f"# {head}: {len(reasons)}"]
    for reason in sorted(groups):
        names = " ".join(sorted(groups[reason]))
        text = textwrap.wrap(names, 84, break_on_hyphens=False, break_long_words=False)
        lines += [reason, *(f"    {part}" for part in text)]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def describe_disagreement(case: OnnxCase, device: str, reasons: dict[str, str]) -> str:
    """Describe how a case's outcome disagrees with the lists; "" if it agrees."""
    result, listed_as = run_case(case, device), reasons.get(case.name)
    if result.status == "wrong":
        return f"{case.name} is wrong: {result.details}"
    if result.status == "right" and listed_as is not None:
        return f"{case.name} is right, and listed as left out: {listed_as}"
    if result.status == "refused" and listed_as is None:
        return f"{case.name} is refused, and not listed: {result.details}"
    if result.status == "refused" and result.reason != listed_as:
        return (
            f"{case.name} is listed as left out for {listed_as!r}, not {result.details}"
        )
    return ""


def main() -> None:
    """Write the lists."""
    warnings.simplefilter("ignore")
    everywhere = refused_now("cpu")
    write_list(REFUSED_EVERYWHERE, everywhere, "refused on every device")
    print(
        f"{len(load_cases()) - len(everywhere)} of {len(load_cases())} right on the CPU"
    )
    on_gpus = {
        n: r for n, r in refused_now(DEVICE_WITH_F16).items() if n not in everywhere
    }
    write_list(REFUSED_ON_GPUS, on_gpus, "refused by WGSL adapters beyond that")
    print(
        f"{len(load_cases()) - len(everywhere) - len(on_gpus)} right on "
        f"{DEVICE_WITH_F16}"
    )
    known = {**everywhere, **on_gpus}
    without_f16 = {n: r for n, r in refused_now("opengl").items() if known.get(n) != r}
    write_list(
        REFUSED_WITHOUT_F16,
        without_f16,
        "refused by those without f16, or for that reason",
    )
    print(f"{len(load_cases()) - len({**known, **without_f16})} right on opengl")


if __name__ == "__main__":
    sys.exit(main())
