"""What the registry holds of a device: how to tell if it is there, and how to open it.

A row may have several ways, libraries that are tried in turn; of each that cannot be
used the reason is told. A library that is installed and broken, whatever it does when
it is imported, is a reason like every other.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module

from rlxweb.backends.protocol import Backend
from rlxweb.errors import AdapterMissing, DeviceError, MustAwait, shown
from rlxweb.library_probe import library_problem
from rlxweb.library_versions import installed_version

Open = Callable[[str], Awaitable[Backend]]
Why = Callable[[], str]
"""Why something cannot be tried here, in words; "" where it can. Imports no library."""


def nothing_missing() -> str:
    """What is asked of nothing is there."""
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """How to open one device; `platforms` empty means everywhere.

    open        part of an adapter's name, or "" → the engine. Errors  AdapterMissing
    display     the name in messages, where RLX has none for the device
    present     looked at before it is opened, and cheap: it imports no library
    named_only  "auto" never takes the device unless somebody names it
    hint        how to get the device, for whoever asked for it in vain
    found       what is installed and would serve, "PyTorch 2.9.0"; "" where it is open
    """

    open: Open
    platforms: tuple[str, ...] = ()
    display: str = ""
    present: Why = nothing_missing
    named_only: bool | Callable[[], bool] = False
    hint: str = ""
    found: Why = nothing_missing

    def why_absent(self) -> str:
        """What `present` says; also where it cannot say anything."""
        try:
            return str(self.present())
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # another package's
            return broken(error)

    def is_named_only(self) -> bool:
        """What `named_only` says; True where it cannot."""
        try:
            asked = self.named_only
            return bool(asked() if callable(asked) else asked)
        except KeyboardInterrupt:
            raise
        except BaseException:  # another package's; `present` or opening will say why
            return True


@dataclass(frozen=True, slots=True)
class Way:
    """A library that can serve a device.

    library       its name in messages
    proves        opening it runs something and checks the numbers
    distribution  what it is installed as, where that is one name
    """

    library: str
    present: Why
    open: Open
    proves: bool = False
    distribution: str = ""


def arrays(library: str, module: str, kind: str, here: Why) -> Way:
    """The engine over a library's arrays: `open_<module>` of its own file."""

    async def open_arrays(adapter: str) -> Backend:
        home = import_module(f"rlxweb.backends.{module}_arrays")
        why = library_problem(_MODULES.get(module, module), _TRIAL, module, kind)
        if why:
            raise AdapterMissing(library, unusable(why), *_BROKEN)
        backend: Backend = await getattr(home, f"open_{module}")(kind, adapter)
        return backend

    return Way(
        library, here, open_arrays, distribution="" if module == "cupy" else module
    )


_MODULES = {"mlx": "mlx.core"}
_TRIAL = "rlxweb.backends.row:try_arrays"


def try_arrays(opened: Callable[[], object], module: str, kind: str) -> None:
    """Open the engine over a library's arrays and compute: the work of a child.

    The library first: one that ends or blocks a process mostly does so as it is loaded.
    """
    import_module(_MODULES.get(module, module))
    from rlxweb.backends.proof import prove_engine
    from rlxweb.gpu.drive import drive

    home = import_module(f"rlxweb.backends.{module}_arrays")
    backend = drive(getattr(home, f"open_{module}")(kind, ""))
    opened()
    drive(prove_engine(backend, "try"))


def by_libraries(
    label: str,
    *ways: Way,
    needs: Why = nothing_missing,
    platforms: tuple[str, ...] = (),
    display: str = "",
    named_only: bool | Callable[[], bool] = False,
    hint: str = "",
) -> Row:
    """The row of a device that any of several libraries serves, the first that can.

    needs   what all of them need: a driver
    """

    def found() -> str:
        way = next(way for way in ways if not way.present())
        return f"{way.library} {installed_version(way.distribution)}".rstrip()

    present, opened = any_of(*ways, needs=needs), in_turn(label, *ways)
    return Row(opened, platforms, display, present, named_only, hint, found)


def any_of(*ways: Way, needs: Why = nothing_missing) -> Why:
    """Every reason where no way is open, "" where one is.

    needs   what all of them need: a driver
    """

    def why() -> str:
        missing = [needs(), *(way.present() for way in ways)]
        if not missing[0] and not all(missing[1:]):
            return ""
        return "; ".join(dict.fromkeys(filter(None, missing)))

    return why


def in_turn(label: str, *ways: Way) -> Open:
    """Opens the first way that can be used; AdapterMissing tells why none can."""

    async def open_first(adapter: str) -> Backend:
        passed: list[tuple[str, str]] = []
        for way in ways:
            why = way.present()
            if not why:
                try:
                    backend = await safely(way, adapter)
                except MustAwait:
                    raise
                except DeviceError as error:
                    why = str(error)
                else:
                    backend.passed_over = tuple(passed)
                    return backend
            passed.append((way.library, why))
        reasons = "; ".join(why for _, why in passed)
        raise AdapterMissing(f"open device '{label}'", reasons, candidates=passed)

    return open_first


async def safely(way: Way, adapter: str) -> Backend:
    """The engine, opened and found to compute right; what it prints goes to stderr.

    Errors   AdapterMissing for whatever a broken library raises; DeviceError.
    """
    from rlxweb.backends.proof import prove_engine  # the compiler is loaded with it

    try:
        with redirect_stdout(sys.stderr):
            backend = await way.open(adapter)
            if not isinstance(backend, Backend):
                raise TypeError(f"it opened {shown(backend)}, which is no engine")
            if not way.proves:
                await prove_engine(backend, f"prove {way.library}")
    except (DeviceError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a module may even end the process when imported
        raise AdapterMissing(way.library, broken(error), *_BROKEN) from error
    return backend


_BROKEN = ("", "reinstall it, or remove it")


def broken(error: BaseException) -> str:
    """What a broken library raised, in one line."""
    first = next(iter(str(error).strip().splitlines()), "")
    return unusable(
        f"{type(error).__name__}: {first}" if first else type(error).__name__
    )


def unusable(why: str) -> str:
    """A broken library's reason as a clause of a message."""
    return f"it is installed and cannot be used ({why})"
