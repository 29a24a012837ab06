"""Engines that other packages add: the entry points of the group `rlxweb.backends`.

An entry point's name is the device's label, its object a `Row`. Only names are read
until an engine is asked for or listed; a package that is broken, or that takes a name
which is not free, is a row that says so and nobody else's error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from rlxweb.backends.protocol import Backend
from rlxweb.backends.row import (
    Row,
    Way,
    broken,
    nothing_missing,
    safely,
    unusable,
)
from rlxweb.device import ALIASES, Device, is_open
from rlxweb.errors import AdapterMissing, shown
from rlxweb.library_probe import library_problem

if TYPE_CHECKING:  # a job on the CPU reads no metadata
    from importlib.metadata import Distribution, EntryPoint

GROUP = "rlxweb.backends"
_LABEL = re.compile(r"[a-z0-9][a-z0-9._-]*")
_OURS = frozenset({*(d.label for d in Device), *ALIASES})


@dataclass(frozen=True, slots=True)
class Offered:
    """One entry point; `package` is the distribution it came with."""

    entry: EntryPoint
    package: str


@dataclass(frozen=True, slots=True)
class Declared:
    """What is installed: engines by label, and what was refused, with the reasons.

    rows   of the engines that were asked for so far
    """

    engines: dict[str, Offered]
    refused: tuple[str, ...]
    rows: dict[str, Row] = field(default_factory=dict)

    def row_of(self, label: str) -> Row | None:
        """The row of an engine that another package adds; None where none does.

        The package's module is imported; what goes wrong then is why the device is
        missing.
        """
        offered = self.engines.get(label)
        if offered is None:
            return None
        if label not in self.rows:
            self.rows.setdefault(label, _row(offered))  # of two threads' the first
        return self.rows[label]


def declared(ours: Iterable[str]) -> Declared:
    """Read once for what sys.path is; no package is imported.

    ours   labels that are not free, beside RLX's names
    """
    return _declared(tuple(sys.path), _OURS.union(ours))


@cache
def _declared(path: tuple[str, ...], ours: frozenset[str]) -> Declared:
    from importlib.metadata import distributions

    engines: dict[str, Offered] = {}
    refused: list[str] = []
    folders = [p for p in path if not _is_python_itself(p)]
    for distribution in distributions(path=folders):
        try:
            # Metadata takes a millisecond to parse, and most packages add no engine.
            if GROUP not in (distribution.read_text("entry_points.txt") or ""):
                continue
            package = f"{distribution.name} {distribution.version}"
            if _is_hidden(distribution, folders):
                continue
            offered = list(_of(distribution, package))
        except Exception as error:  # its metadata is damaged
            refused.append(f"damaged entry points ({type(error).__name__}: {error})")
            continue
        for one in offered:
            why = _not_free(one, ours, engines)
            if why:
                refused.append(f"'{one.entry.name}' of {one.package}: {why}")
            else:
                engines[one.entry.name] = one
    return Declared(engines, tuple(refused))


def _is_hidden(distribution: Distribution, folders: list[str]) -> bool:
    """Whether a distribution of the same name stands earlier on the path."""
    from importlib.metadata import Distribution

    first = next(iter(Distribution.discover(name=distribution.name, path=folders)))
    return str(first.locate_file("")) != str(distribution.locate_file(""))


def _is_python_itself(entry: str) -> bool:
    """Its zip holds no packages, and in a tab reading it takes long."""
    return entry.endswith(f"python{sys.version_info[0]}{sys.version_info[1]}.zip")


def forget() -> None:
    """Read anew when asked next: packages may have come or gone."""
    _declared.cache_clear()


def _of(distribution: Distribution, package: str) -> Iterator[Offered]:
    for entry in distribution.entry_points:
        if entry.group == GROUP:
            yield Offered(entry, package)


def _not_free(one: Offered, ours: frozenset[str], taken: dict[str, Offered]) -> str:
    label = one.entry.name
    if not _LABEL.fullmatch(label):
        return "a label is lower-case letters, digits, '.', '_' and '-'"
    if label in ours or is_open(label):
        return "the name is rlxweb's own"
    if label in taken:
        return f"{taken[label].package} has that name already"
    return ""


_TRIAL = "rlxweb.backends.entry_points:try_entry"


def try_entry(opened: Callable[[], object], value: str) -> None:
    """Load the row of another package and open its engine: the work of a child."""
    from importlib.metadata import EntryPoint

    from rlxweb.gpu.drive import drive

    async def load() -> None:
        row = EntryPoint("tried", value, GROUP).load()
        if isinstance(row, Row) and not row.why_absent():
            await row.open("")

    drive(load())
    opened()


def _row(offered: Offered) -> Row:
    label, value = offered.entry.name, offered.entry.value
    why = library_problem(offered.entry.module, _TRIAL, value)
    if why:
        return _blocked(offered, unusable(why))
    try:
        with redirect_stdout(sys.stderr):
            row = offered.entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may even end the process
        return _blocked(offered, broken(error))
    if not isinstance(row, Row):
        return _blocked(
            offered,
            f"its entry point is {shown(row)}; a rlxweb.backends.registry.Row is "
            "wanted",
        )
    way = Way(f"'{label}' of {offered.package}", nothing_missing, row.open)
    opened = partial(safely, way)
    return replace(row, open=opened, display=row.display or label)


def _blocked(offered: Offered, why: str) -> Row:
    said = f"{offered.package}: {why}"

    async def never(adapter: str) -> Backend:
        raise AdapterMissing(f"open device '{offered.entry.name}'", said)

    return Row(never, (), offered.entry.name, lambda: said, named_only=True)
