"""Registry rows: detection of a device, and how to open it by one or more libraries.

A row may have several engines, one a library, which are tried in turn; of each that
cannot be used the reason is told. A library that is installed and broken, whatever it
does when it is imported, is a reason like every other.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module

from rlxweb.core.errors import AdapterMissing, DeviceError, MustAwait, shown
from rlxweb.core.library_crash_probe import library_problem
from rlxweb.core.required_library_versions import installed_version
from rlxweb.engines.protocol import Engine

OpenEngine = Callable[[str], Awaitable[Engine]]
AbsenceCheck = Callable[[], str]
"""Function that returns why something cannot be tried here, or "" if it can. Imports no
library.
"""


def always_present() -> str:
    """Return "": nothing is missing."""
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """Registry entry of one device; empty `platforms` means everywhere.

    open        part of an adapter's name, or "" → the engine. Errors  AdapterMissing
    display     the name in messages, where RLX has none for the device
    present     looked at before it is opened, and cheap: it imports no library
    named_only  "auto" never takes the device unless somebody names it
    hint        how to get the device, for whoever asked for it in vain
    installed_library  what is installed and would serve, "PyTorch 2.9.0"; "" where it
                       is open
    """

    open: OpenEngine
    platforms: tuple[str, ...] = ()
    display: str = ""
    present: AbsenceCheck = always_present
    named_only: bool | Callable[[], bool] = False
    hint: str = ""
    installed_library: AbsenceCheck = always_present

    def absence_reason(self) -> str:
        """Return the result of `present`, or the error that it raised."""
        try:
            return str(self.present())
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # another package's
            return broken_library_reason(error)

    def is_named_only(self) -> bool:
        """Return the value of `named_only`; True if it cannot be told."""
        try:
            named_only = self.named_only
            return bool(named_only() if callable(named_only) else named_only)
        except KeyboardInterrupt:
            raise
        except BaseException:  # another package's; `present` or opening will say why
            return True


@dataclass(frozen=True, slots=True)
class EngineLibrary:
    """Library that can serve a device.

    name          its name in messages
    has_self_test  opening it runs something and checks the numbers
    distribution  what it is installed as, where that is one name
    """

    name: str
    present: AbsenceCheck
    open: OpenEngine
    has_self_test: bool = False
    distribution: str = ""


def array_library(
    name: str, module: str, kind: str, absence_check: AbsenceCheck
) -> EngineLibrary:
    """Return a library whose arrays an engine computes with; its module's
    `open_<module>` opens it.
    """

    async def open_arrays(adapter: str) -> Engine:
        engine_module = import_module(f"rlxweb.engines.{module}_engine")
        reason = library_problem(
            _IMPORT_NAMES.get(module, module), _TRIAL_FUNCTION, module, kind
        )
        if reason:
            raise AdapterMissing(name, unusable_clause(reason), *_BROKEN_ADVICE)
        engine: Engine = await getattr(engine_module, f"open_{module}")(kind, adapter)
        return engine

    return EngineLibrary(
        name,
        absence_check,
        open_arrays,
        distribution="" if module == "cupy" else module,
    )


_IMPORT_NAMES = {"mlx": "mlx.core"}
_TRIAL_FUNCTION = "rlxweb.engines.registry_row:try_arrays"


def try_arrays(report_opened: Callable[[], object], module: str, kind: str) -> None:
    """Open the engine over a library's arrays and compute with it, in a child process.

    The library first: one that ends or blocks a process mostly does so as it is loaded.
    """
    import_module(_IMPORT_NAMES.get(module, module))
    from rlxweb.engines.engine_self_test import run_self_test
    from rlxweb.gpu.coroutine_runner import run_blocking

    engine_module = import_module(f"rlxweb.engines.{module}_engine")
    engine = run_blocking(getattr(engine_module, f"open_{module}")(kind, ""))
    report_opened()
    run_blocking(run_self_test(engine, "try"))


def row_from_libraries(
    label: str,
    *libraries: EngineLibrary,
    requirement: AbsenceCheck = always_present,
    platforms: tuple[str, ...] = (),
    display: str = "",
    named_only: bool | Callable[[], bool] = False,
    hint: str = "",
) -> Row:
    """Return the row of a device that several libraries can serve; the first usable one
    is taken.

    requirement  what all of them need: a driver
    """

    def installed_library() -> str:
        library = next(library for library in libraries if not library.present())
        return f"{library.name} {installed_version(library.distribution)}".rstrip()

    present = combined_absence_check(*libraries, requirement=requirement)
    open_engine = first_usable_opener(label, *libraries)
    return Row(
        open_engine, platforms, display, present, named_only, hint, installed_library
    )


def combined_absence_check(
    *libraries: EngineLibrary, requirement: AbsenceCheck = always_present
) -> AbsenceCheck:
    """Return a check with every library's reason if none is present, and "" if one is.

    requirement  what all of them need: a driver
    """

    def absence_reason() -> str:
        missing = [requirement(), *(library.present() for library in libraries)]
        if not missing[0] and not all(missing[1:]):
            return ""
        return "; ".join(dict.fromkeys(filter(None, missing)))

    return absence_reason


def first_usable_opener(label: str, *libraries: EngineLibrary) -> OpenEngine:
    """Return a function that opens the first usable library; its AdapterMissing tells
    why none can be used.
    """

    async def open_first(adapter: str) -> Engine:
        skipped: list[tuple[str, str]] = []
        for library in libraries:
            reason = library.present()
            if not reason:
                try:
                    engine = await open_and_test(library, adapter)
                except MustAwait:
                    raise
                except DeviceError as error:
                    reason = str(error)
                else:
                    engine.skipped_libraries = tuple(skipped)
                    return engine
            skipped.append((library.name, reason))
        reasons = "; ".join(reason for _, reason in skipped)
        raise AdapterMissing(f"open device '{label}'", reasons, candidates=skipped)

    return open_first


async def open_and_test(library: EngineLibrary, adapter: str) -> Engine:
    """Open an engine and check its results; what it prints goes to stderr.

    Errors   AdapterMissing for whatever a broken library raises; DeviceError.
    """
    from rlxweb.engines.engine_self_test import (
        run_self_test,
    )  # the compiler is loaded with it

    try:
        with redirect_stdout(sys.stderr):
            engine = await library.open(adapter)
            if not isinstance(engine, Engine):
                raise TypeError(
                    f"the library opened {shown(engine)}, which is not an engine"
                )
            if not library.has_self_test:
                await run_self_test(engine, f"test {library.name}")
    except (DeviceError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a module may even end the process when imported
        raise AdapterMissing(
            library.name, broken_library_reason(error), *_BROKEN_ADVICE
        ) from error
    return engine


_BROKEN_ADVICE = ("", "reinstall or remove the library")


def broken_library_reason(error: BaseException) -> str:
    """Describe the error of a broken library in one line."""
    first_line = next(iter(str(error).strip().splitlines()), "")
    return unusable_clause(
        f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
    )


def unusable_clause(reason: str) -> str:
    """Return a broken library's reason as a clause of a message."""
    return f"it is installed but cannot be used ({reason})"
