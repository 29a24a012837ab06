"""Runs inside Pyodide: bytecode of what a page imports until its first result.

/bytecode.zip           of rlxweb and NumPy, in __pycache__ beside the sources, and of
                        what dataclasses write, {source: code} as marshal has it
/python_stdlib.zip      the standard library as it was, and bytecode in the same zip

Unchecked pyc files, as PEP 552 has them: they and their sources come together. A
dataclass writes its methods as text and compiles them when its module is imported, each
of them: half the time that a tab takes to import rlxweb.
"""

import builtins
import dataclasses
import marshal
import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode, compile
from types import CodeType
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np

WRITTEN: dict[str, CodeType] = {}
"""What dataclasses wrote since this module began, compiled."""


def noting(source: str, *spaces: Any) -> None:
    """`exec`, as the module of dataclasses sees it."""
    code = builtins.compile(source, "<string>", "exec")
    WRITTEN[source] = code
    exec(code, *spaces)


vars(dataclasses)["exec"] = noting  # found before the builtin of that name

import rlxweb  # noqa: E402  # its classes are to be seen being made

SITE = Path(np.__file__).parents[1]
LIBRARY = next(path for path in sys.path if path.endswith(".zip"))
SCRATCH = Path("/tmp/source.py")
SAME_DATE = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever it is built
DATACLASSES = "rlxweb_dataclasses.marshal"
DEVICE = ("backends.webgpu", "devices.availability", "gpu.browser")
DEMOS = ("calibration.known", "devices.place", "io", "smoke.suite", "smoke.verdict")
"""What pages import until their first result, beside an estimate of NumPy's."""


def imported() -> list[str]:
    """The files of the modules that are loaded."""
    files = (getattr(module, "__file__", None) for module in sys.modules.values())
    return sorted({file for file in files if file and file.endswith(".py")})


def write(archive: ZipFile, name: str, source: bytes, file: str) -> None:
    """Add the bytecode of the module in `file` as `name`."""
    SCRATCH.write_bytes(source)
    unchecked = PycInvalidationMode.UNCHECKED_HASH
    made = compile(str(SCRATCH), None, file, doraise=True, invalidation_mode=unchecked)
    archive.writestr(ZipInfo(name, SAME_DATE), Path(made).read_bytes(), ZIP_DEFLATED, 9)


def packages(files: Iterable[str]) -> None:
    """Of NumPy what is loaded, of rlxweb all that can be used in a tab."""
    ours = {p for p in (SITE / "rlxweb").rglob("*.py") if "cli" not in p.parts}
    with ZipFile("/bytecode.zip", "w") as archive:
        for path in sorted(ours | set(map(Path, files))):
            if path.is_relative_to(SITE):
                name = Path(cache_from_source(path)).relative_to(SITE)
                write(archive, str(name), path.read_bytes(), str(path))
        codes = marshal.dumps(dict(sorted(WRITTEN.items())))
        archive.writestr(ZipInfo(DATACLASSES, SAME_DATE), codes, ZIP_DEFLATED, 9)


def library(files: Iterable[str]) -> None:
    """The standard library lies in a zip, where a module and its pyc are neighbours."""
    with ZipFile(LIBRARY) as given, ZipFile("/python_stdlib.zip", "w") as archive:
        for entry in given.infolist():
            archive.writestr(entry, given.read(entry))
        for file in files:
            if file.startswith(f"{LIBRARY}/"):
                name = file.removeprefix(f"{LIBRARY}/")
                write(archive, f"{name}c", given.read(name), file)


rlxweb.welch_peaks(np.zeros((1, 256), np.float32), device="cpu")
for name in DEVICE + DEMOS:
    import_module(f"rlxweb.{name}")
list(import_module("rlxweb.smoke.suite").page_cases())  # all ops and their samples
packages(imported())
library(imported())
