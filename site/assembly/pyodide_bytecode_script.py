"""Script that runs inside Pyodide and compiles what a page imports until its first
result.

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

DATACLASS_CODE: dict[str, CodeType] = {}
"""Source → code that dataclasses have generated since this module began."""


def exec_recorded(source: str, *namespaces: Any) -> None:
    """Execute generated source like `exec`, which the dataclasses module calls, and
    record its code.
    """
    code = builtins.compile(source, "<string>", "exec")
    DATACLASS_CODE[source] = code
    exec(code, *namespaces)


vars(dataclasses)["exec"] = exec_recorded  # found before the builtin of that name

import rlxweb  # noqa: E402  # its classes are to be seen being made

SITE_PACKAGES = Path(np.__file__).parents[1]
STDLIB_ZIP = next(path for path in sys.path if path.endswith(".zip"))
SCRATCH_FILE = Path("/tmp/source.py")
FIXED_DATE = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever it is built
DATACLASS_CODE_FILE = "rlxweb_dataclasses.marshal"
DEVICE_MODULES = ("engines.webgpu.engine", "select.availability", "gpu.browser_port")
DEMO_MODULES = (
    "select.calibration.engine_calibration_lookup",
    "select.device_and_adapter",
    "io",
    "smoke.suite",
    "smoke.verdict",
)
"""Modules that pages import until their first result, besides those of a NumPy
estimate.
"""


def loaded_files() -> list[str]:
    """Return the source files of the loaded modules."""
    files = (getattr(module, "__file__", None) for module in sys.modules.values())
    return sorted({file for file in files if file and file.endswith(".py")})


def write_bytecode(archive: ZipFile, name: str, source: bytes, file: str) -> None:
    """Add the bytecode of the module in `file` as `name`."""
    SCRATCH_FILE.write_bytes(source)
    unchecked = PycInvalidationMode.UNCHECKED_HASH
    compiled_path = compile(
        str(SCRATCH_FILE), None, file, doraise=True, invalidation_mode=unchecked
    )
    archive.writestr(
        ZipInfo(name, FIXED_DATE), Path(compiled_path).read_bytes(), ZIP_DEFLATED, 9
    )


def write_package_bytecode(files: Iterable[str]) -> None:
    """Write the bytecode of NumPy's loaded modules and of all of rlxweb that works in a
    browser tab.
    """
    rlxweb_files = {
        file
        for file in (SITE_PACKAGES / "rlxweb").rglob("*.py")
        if "cli" not in file.parts
    }
    with ZipFile("/bytecode.zip", "w") as archive:
        for path in sorted(rlxweb_files | set(map(Path, files))):
            if path.is_relative_to(SITE_PACKAGES):
                name = Path(cache_from_source(path)).relative_to(SITE_PACKAGES)
                write_bytecode(archive, str(name), path.read_bytes(), str(path))
        marshalled = marshal.dumps(dict(sorted(DATACLASS_CODE.items())))
        archive.writestr(
            ZipInfo(DATACLASS_CODE_FILE, FIXED_DATE), marshalled, ZIP_DEFLATED, 9
        )


def write_stdlib_bytecode(files: Iterable[str]) -> None:
    """Write the standard library's zip with each loaded module's pyc beside its
    source.
    """
    with ZipFile(STDLIB_ZIP) as original, ZipFile("/python_stdlib.zip", "w") as archive:
        for entry in original.infolist():
            archive.writestr(entry, original.read(entry))
        for file in files:
            if file.startswith(f"{STDLIB_ZIP}/"):
                name = file.removeprefix(f"{STDLIB_ZIP}/")
                write_bytecode(archive, f"{name}c", original.read(name), file)


rlxweb.welch_peaks(np.zeros((1, 256), np.float32), device="cpu")
for name in DEVICE_MODULES + DEMO_MODULES:
    import_module(f"rlxweb.{name}")
list(import_module("rlxweb.smoke.suite").page_cases())  # all ops and their samples
write_package_bytecode(loaded_files())
write_stdlib_bytecode(loaded_files())
