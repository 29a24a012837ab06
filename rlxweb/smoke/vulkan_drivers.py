"""Vulkan driver files (ICDs) of a machine, and why one of them provides no adapter.

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

from rlxweb.core.atomic_file import error_reason

ICD_VARIABLE = "VK_ICD_FILENAMES"
_ICD_DIRECTORIES = (
    "/etc/vulkan/icd.d",
    "/usr/share/vulkan/icd.d",
    "/usr/local/share/vulkan/icd.d",
    "/usr/local/etc/vulkan/icd.d",
)
_DRIVER_VARIABLE = "VK_DRIVER_FILES"
"""Variable of newer loaders; it takes precedence over the other one."""
EnvironmentVariables = dict[str, str]


def list_icds(environment: EnvironmentVariables) -> list[str]:
    """Return the paths of the drivers that the loader would look at."""
    folders = map(Path, _ICD_DIRECTORIES)
    installed = chain(*(sorted(folder.glob("*.json")) for folder in folders))
    return environment_icds(environment) or [str(path) for path in installed]


def environment_icds(environment: EnvironmentVariables) -> list[str]:
    """Return the drivers named by the environment; without any, the system folders
    apply.
    """
    path_list = environment.get(_DRIVER_VARIABLE) or environment.get(ICD_VARIABLE) or ""
    return [path for path in path_list.split(os.pathsep) if path]


def add_icds(
    environment: Mapping[str, str], added_icds: Sequence[str]
) -> EnvironmentVariables:
    """Return the variables that make old and new loaders look at further drivers
    too.
    """
    variables = dict(environment)
    if added_icds or environment_icds(variables):
        all_icds = dict.fromkeys([*list_icds(variables), *added_icds])
        variables.pop(_DRIVER_VARIABLE, None)
        variables[ICD_VARIABLE] = os.pathsep.join(all_icds)
    return variables


def icd_fault(icd: str) -> str:
    """Return why the loader skips a driver; "" if it does not.

    Loads the library, which may end the process.
    """
    try:
        library = json.loads(Path(icd).read_bytes())["ICD"]["library_path"]
        # With a folder in it, it is meant from where the file itself lies.
        has_folder = "/" in library or "\\" in library
        path = str(Path(icd).parent / library) if has_folder else library
    except OSError as error:
        return f"the file of this driver cannot be read: {error_reason(error)}"
    except (ValueError, KeyError, TypeError):
        return "this file does not contain the path of a Vulkan driver library"
    try:
        ctypes.CDLL(path)
    except OSError as error:
        return f"the library of this driver cannot be loaded: {error}"
    return ""
