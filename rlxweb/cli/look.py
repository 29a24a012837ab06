"""How a picture looks: options that every command with `--plot` takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from rlxweb.cli import options
from rlxweb.plot.rows import LINES, ON_ONE, WAYS


@dataclass(frozen=True, slots=True)
class Look:
    """What was asked for.

    axis    of frequencies, "linear" or "log"
    lines   how spectra are drawn; None: by how many there are
    dark    light on dark
    """

    axis: str = "linear"
    lines: str | None = None
    dark: bool = False

    @property
    def log(self) -> bool:
        return self.axis == "log"


PLAIN = Look()
AXIS = options.one_of(
    "--axis", ["linear", "log"], "Of frequencies in the picture.", "linear"
)
WAY = options.one_of(
    "--lines",
    WAYS,
    "Spectra over each other, each above the next, each in a panel, or as colours "
    f"[up to {ON_ONE} overlaid, up to {LINES} panels, more a heatmap].",
)
DARK = click.option("--dark", is_flag=True, help="Draw the picture light on dark.")


def look_of(asked: dict[str, Any]) -> Look:
    """Taken out of the options of a command."""
    names = ("axis", "lines", "dark")
    return Look(**{name: asked.pop(name) for name in names if name in asked})
