"""Engines of other packages: the entry points of the group `rlxweb.backends`.

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

from rlxweb.core.device import ALIASES, Device, is_auto
from rlxweb.core.errors import AdapterMissing, shown
from rlxweb.core.library_crash_probe import library_problem
from rlxweb.engines.protocol import Engine
from rlxweb.engines.registry_row import (
    EngineLibrary,
    Row,
    always_present,
    broken_library_reason,
    open_and_test,
    unusable_clause,
)

if TYPE_CHECKING:  # a job on the CPU reads no metadata
    from importlib.metadata import Distribution, EntryPoint

GROUP = "rlxweb.backends"
_LABEL_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]*")
_RESERVED_LABELS = frozenset({*(d.label for d in Device), *ALIASES})


@dataclass(frozen=True, slots=True)
class EngineEntryPoint:
    """Entry point of an engine; `package` is the distribution it came with."""

    entry_point: EntryPoint
    package: str


@dataclass(frozen=True, slots=True)
class InstalledEngines:
    """Installed engines by label, and the rejected entry points with the reasons.

    rows   of the engines that were asked for so far
    """

    entry_points: dict[str, EngineEntryPoint]
    rejections: tuple[str, ...]
    rows: dict[str, Row] = field(default_factory=dict)

    def find_row(self, label: str) -> Row | None:
        """Return the registry row of an engine that another package adds; None if none
        does.

        The package's module is imported; what goes wrong then is why the device is
        missing.
        """
        entry_point = self.entry_points.get(label)
        if entry_point is None:
            return None
        if label not in self.rows:
            self.rows.setdefault(
                label, _load_row(entry_point)
            )  # of two threads' the first
        return self.rows[label]


def installed_engines(reserved_labels: Iterable[str]) -> InstalledEngines:
    """Read the entry points once per value of sys.path; no package is imported.

    reserved_labels  labels that are not free, beside RLX's names
    """
    return _scan_entry_points(tuple(sys.path), _RESERVED_LABELS.union(reserved_labels))


@cache
def _scan_entry_points(
    path: tuple[str, ...], reserved_labels: frozenset[str]
) -> InstalledEngines:
    from importlib.metadata import distributions

    entry_points: dict[str, EngineEntryPoint] = {}
    rejections: list[str] = []
    folders = [entry for entry in path if not _is_stdlib_zip(entry)]
    for distribution in distributions(path=folders):
        try:
            # Metadata takes a millisecond to parse, and most packages add no engine.
            if GROUP not in (distribution.read_text("entry_points.txt") or ""):
                continue
            package = f"{distribution.name} {distribution.version}"
            if _is_shadowed(distribution, folders):
                continue
            candidates = list(_engine_entry_points(distribution, package))
        except Exception as error:  # its metadata is damaged
            rejections.append(
                f"a package has invalid entry points ({type(error).__name__}: {error})"
            )
            continue
        for candidate in candidates:
            reason = _label_problem(candidate, reserved_labels, entry_points)
            if reason:
                rejections.append(
                    f"'{candidate.entry_point.name}' of {candidate.package}: {reason}"
                )
            else:
                entry_points[candidate.entry_point.name] = candidate
    return InstalledEngines(entry_points, tuple(rejections))


def _is_shadowed(distribution: Distribution, folders: list[str]) -> bool:
    """Return whether a distribution of the same name comes earlier on the path."""
    from importlib.metadata import Distribution

    first = next(iter(Distribution.discover(name=distribution.name, path=folders)))
    return str(first.locate_file("")) != str(distribution.locate_file(""))


def _is_stdlib_zip(entry: str) -> bool:
    """Return whether a path entry is Python's own zip, which holds no packages and is
    slow to read in a tab.
    """
    return entry.endswith(f"python{sys.version_info[0]}{sys.version_info[1]}.zip")


def clear_cache() -> None:
    """Read the entry points again on next use: packages may have come or gone."""
    _scan_entry_points.cache_clear()


def _engine_entry_points(
    distribution: Distribution, package: str
) -> Iterator[EngineEntryPoint]:
    for entry in distribution.entry_points:
        if entry.group == GROUP:
            yield EngineEntryPoint(entry, package)


def _label_problem(
    candidate: EngineEntryPoint,
    reserved_labels: frozenset[str],
    accepted: dict[str, EngineEntryPoint],
) -> str:
    label = candidate.entry_point.name
    if not _LABEL_PATTERN.fullmatch(label):
        return "the name may contain only lower-case letters, digits, '.', '_' and '-'"
    if label in reserved_labels or is_auto(label):
        return "the name is reserved by rlxweb"
    if label in accepted:
        return f"{accepted[label].package} already uses this name"
    return ""


_TRY_ENTRY_TARGET = "rlxweb.engines.plugin_entry_points:try_entry"


def try_entry(report_opened: Callable[[], object], value: str) -> None:
    """Load another package's row and open its engine, in a child process."""
    from importlib.metadata import EntryPoint

    from rlxweb.gpu.coroutine_runner import run_blocking

    async def load() -> None:
        row = EntryPoint("tried", value, GROUP).load()
        if isinstance(row, Row) and not row.absence_reason():
            await row.open("")

    run_blocking(load())
    report_opened()


def _load_row(candidate: EngineEntryPoint) -> Row:
    label, value = candidate.entry_point.name, candidate.entry_point.value
    problem = library_problem(candidate.entry_point.module, _TRY_ENTRY_TARGET, value)
    if problem:
        return _unusable_row(candidate, unusable_clause(problem))
    try:
        with redirect_stdout(sys.stderr):
            row = candidate.entry_point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may even end the process
        return _unusable_row(candidate, broken_library_reason(error))
    if not isinstance(row, Row):
        return _unusable_row(
            candidate,
            f"the entry point is {shown(row)}; expected a rlxweb.engines.registry.Row",
        )
    library = EngineLibrary(
        f"'{label}' of {candidate.package}", always_present, row.open
    )
    open_checked = partial(open_and_test, library)
    return replace(row, open=open_checked, display=row.display or label)


def _unusable_row(candidate: EngineEntryPoint, reason: str) -> Row:
    message = f"{candidate.package}: {reason}"

    async def fail_to_open(adapter: str) -> Engine:
        raise AdapterMissing(f"open device '{candidate.entry_point.name}'", message)

    return Row(
        fail_to_open, (), candidate.entry_point.name, lambda: message, named_only=True
    )
