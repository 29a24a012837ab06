"""The Vulkan drivers of a machine, and why one of them gives no adapter.

A driver is a JSON file that names a library. The loader passes over what it cannot
load, and says nothing; here it is said.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from rlxweb.whole_file import reason

ICDS = "VK_ICD_FILENAMES"
_ICD_FOLDERS = (
    "/etc/vulkan/icd.d",
    "/usr/share/vulkan/icd.d",
    "/usr/local/share/vulkan/icd.d",
    "/usr/local/etc/vulkan/icd.d",
)
_DRIVERS = "VK_DRIVER_FILES"
"""As newer loaders call them; it goes before the other."""
Variables = dict[str, str]


def icds(environment: Variables) -> list[str]:
    """The drivers the loader would look at, as paths."""
    folders = map(Path, _ICD_FOLDERS)
    every = chain(*(sorted(f.glob("*.json")) for f in folders))
    return named_icds(environment) or [str(path) for path in every]


def named_icds(environment: Variables) -> list[str]:
    """Those that the environment names; without any the system's folders count."""
    named = environment.get(_DRIVERS) or environment.get(ICDS) or ""
    return [path for path in named.split(os.pathsep) if path]


def with_icds(environment: Mapping[str, str], added: Sequence[str]) -> Variables:
    """The variables by which a loader, new or old, looks at further drivers too."""
    made = dict(environment)
    if added or named_icds(made):
        every = dict.fromkeys([*icds(made), *added])
        made.pop(_DRIVERS, None)
        made[ICDS] = os.pathsep.join(every)
    return made


def fault_of(icd: str) -> str:
    """Why the loader passes over a driver; "" where it does not.

    Loads the library, which may end the process.
    """
    try:
        library = json.loads(Path(icd).read_bytes())["ICD"]["library_path"]
        # With a folder in it, it is meant from where the file itself lies.
        has_folder = "/" in library or "\\" in library
        path = str(Path(icd).parent / library) if has_folder else library
    except OSError as error:
        return f"this driver's file cannot be read: {reason(error)}"
    except (ValueError, KeyError, TypeError):
        return "this file does not say where a Vulkan driver's library is"
    try:
        ctypes.CDLL(path)
    except OSError as error:
        return f"this driver's library cannot be loaded: {error}"
    return ""
