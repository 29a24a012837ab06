"""Engine discovery of the smoke check: every adapter once, and a reason for each
missing one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from rlxweb.core.device import Device
from rlxweb.smoke import engine_discovery
from rlxweb.smoke import vulkan_drivers as icd_files
from rlxweb.smoke.child_process import ChildLimits
from rlxweb.smoke.engine_discovery import discover_engines
from rlxweb.smoke.engine_run import EngineRun, SmokeSettings, engine_status
from rlxweb.smoke.vulkan_drivers import ICD_VARIABLE, add_icds, list_icds
from tests.conftest import SOFTWARE_DRIVERS

needs_forked_children = pytest.mark.usefixtures("forked_children")
BOUNDS = ChildLimits(start_s=60.0, total_s=110.0)
LAVAPIPE = str(SOFTWARE_DRIVERS[0])
CRASHING_DRIVER_SOURCE = """
#include <stdlib.h>
__attribute__((constructor)) static void begin(void) { abort(); }
"""


def make_environment(**variables: str) -> dict[str, str]:
    return {**os.environ, **variables}


@needs_forked_children
def test_every_device_is_found_or_has_a_reason() -> None:
    """The CPU comes first; a missing device has a reason and nothing else."""
    engines = discover_engines(BOUNDS, make_environment())
    assert engines[0].device == "cpu"
    assert not engines[0].missing
    devices = {engine.device for engine in engines}
    assert {d.label for d in Device} - devices <= {"gpu"}
    assert {"torch-cpu", "jax-cpu"} <= devices
    cuda = next(engine for engine in engines if engine.device == "cuda")
    assert "NVIDIA" in cuda.missing
    assert len({engine.key for engine in engines}) == len(engines)


@pytest.mark.requires_wgpu
@needs_forked_children
def test_only_drivers_named_in_the_environment_are_found() -> None:
    """A driver that is named alone is found alone."""
    engines = discover_engines(BOUNDS, make_environment(VK_ICD_FILENAMES=LAVAPIPE))
    names = [e.adapter for e in engines if e.device == "vulkan"]
    assert len(names) == 1
    assert "llvmpipe" in names[0]


def test_driver_files_of_the_loader(tmp_path: Path) -> None:
    """The loader reads the named drivers, or else those in the system's folders."""
    driver_paths = os.pathsep.join(["/a.json", "/b.json"])
    assert list_icds({ICD_VARIABLE: driver_paths}) == ["/a.json", "/b.json"]
    assert list_icds({ICD_VARIABLE: "/a.json", "VK_DRIVER_FILES": "/c.json"}) == [
        "/c.json"
    ]
    (tmp_path / "x.json").write_text("{}")
    original_folders, icd_files._ICD_DIRECTORIES = (
        icd_files._ICD_DIRECTORIES,
        (str(tmp_path),),
    )
    try:
        assert list_icds({}) == [str(tmp_path / "x.json")]
    finally:
        icd_files._ICD_DIRECTORIES = original_folders


@pytest.fixture
def crashing_driver(tmp_path: Path) -> str:
    """Return the JSON file of a Vulkan driver that aborts the process that loads it."""
    return build_driver(tmp_path, CRASHING_DRIVER_SOURCE)


def build_driver(tmp_path: Path, text: str) -> str:
    """Compile a Vulkan driver from C source; return its JSON file."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "a C compiler makes the driver"
    source, library = tmp_path / "bad.c", tmp_path / "libbad.so"
    source.write_text(text)
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True, timeout=60)
    icd = {"library_path": str(library), "api_version": "1.3.0"}
    path = tmp_path / "bad_icd.json"
    path.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": icd}))
    return str(path)


@pytest.mark.requires_wgpu
@needs_forked_children
def test_a_driver_that_crashes_when_listed_is_named(crashing_driver: str) -> None:
    """A driver that crashes is named, and the others are tried without it."""
    variables = make_environment(
        VK_ICD_FILENAMES=os.pathsep.join([LAVAPIPE, crashing_driver])
    )
    engines = discover_engines(BOUNDS, variables)
    (culprit,) = [engine for engine in engines if engine.adapter == crashing_driver]
    assert culprit.fell == "crashed"
    assert "SIGABRT" in culprit.why_fell
    (good,) = [
        e for e in engines if e.device == "vulkan" and e.adapter != crashing_driver
    ]
    assert good.environment == {ICD_VARIABLE: LAVAPIPE}
    settings = SmokeSettings("quick", "samples/exp/3", BOUNDS, variables)
    assert engine_status(EngineRun(good, settings).run())[0] == "right"
    assert engine_status(EngineRun(culprit, settings).run())[0] == "crashed"


@pytest.mark.requires_wgpu
@needs_forked_children
def test_drivers_without_an_adapter_are_reported(tmp_path: Path) -> None:
    """A missing file, a malformed file and a missing library are each reported by name.

    Old loaders give up where one file is broken; a good driver is tried all the same.
    """
    missing, malformed, empty = (str(tmp_path / f"{name}.json") for name in "abc")
    Path(malformed).write_text("{")
    Path(empty).write_text(json.dumps({"ICD": {"library_path": "./lib/none.so"}}))
    driver_paths = [missing, malformed, empty, LAVAPIPE]
    engines = discover_engines(
        BOUNDS, make_environment(VK_ICD_FILENAMES=os.pathsep.join(driver_paths))
    )
    by_name = {e.adapter: e for e in engines if e.device == "vulkan"}
    reasons = {
        missing: "No such file",
        malformed: "does not contain",
        empty: "lib/none.so",
    }
    for path, words in reasons.items():
        assert by_name[path].fell == "wrong"
        assert words in by_name[path].why_fell
    (good,) = (e for name, e in by_name.items() if name not in reasons)
    assert "llvmpipe" in good.adapter
    assert good.is_testable


CARDLESS_DRIVER_SOURCE = """
int vk_icdNegotiateLoaderICDInterfaceVersion(unsigned *version) { return 0; }
int create(void) { return -9; }
int count(const char *layer, unsigned *n, void *p) { *n = 0; return 0; }
static int same(const char *a, const char *b) {
  while (*a && *a == *b) { a++; b++; }
  return *a == *b;
}
void *vk_icdGetInstanceProcAddr(void *instance, const char *name) {
  if (same(name, "vkCreateInstance")) return create;
  if (same(name, "vkEnumerateInstanceExtensionProperties")) return count;
  return 0;
}
"""


@needs_forked_children
@pytest.mark.requires_wgpu
@pytest.mark.parametrize("is_added", [True, False])
def test_a_driver_without_a_card(is_added: bool, tmp_path: Path) -> None:
    """A driver without a card is wrong where the user added it, and otherwise
    missing.
    """
    icd = build_driver(tmp_path, CARDLESS_DRIVER_SOURCE)
    variables = make_environment(VK_ICD_FILENAMES=os.pathsep.join([LAVAPIPE, icd]))
    engines = discover_engines(BOUNDS, variables, [icd] if is_added else [])
    (engine,) = (e for e in engines if e.adapter == icd)
    assert (engine.fell, engine.why_fell if is_added else engine.missing) == (
        "wrong" if is_added else "",
        "this driver finds no GPU",
    )
    assert sum(e.device == "vulkan" and e.is_testable for e in engines) == 1


def test_dawn_without_an_adapter_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dawn's library without an adapter is a missing engine, not a wrong one."""
    monkeypatch.setattr(engine_discovery, "absence_reason", lambda device: "")
    monkeypatch.setattr(
        engine_discovery,
        "_list_adapters",
        lambda *arguments: engine_discovery.AdapterListing(()),
    )
    (engine,) = engine_discovery._dawn_engines(BOUNDS, {})
    assert engine.missing == "Dawn finds no usable adapter"


def test_added_drivers_extend_the_existing_ones() -> None:
    """Added drivers are passed in the variable that loaders of every version read."""
    variables = {"VK_DRIVER_FILES": "/a.json", "OTHER": "1"}
    both_paths = os.pathsep.join(["/a.json", "/b.json"])
    assert add_icds(variables, ["/b.json"]) == {ICD_VARIABLE: both_paths, "OTHER": "1"}
    assert add_icds({"OTHER": "1"}, []) == {"OTHER": "1"}


def test_two_adapters_of_one_name_are_two_engines() -> None:
    """Adapters of equal names are numbered in wgpu's order; longer names are
    distinct.
    """

    def make_message(name: str, backend: str = "vulkan") -> Mapping[str, object]:
        facts = dict.fromkeys(("vendor", "driver", "compiler"), "")
        return {"adapter": name, "backend": backend, "software": False, **facts}

    cards = ["RTX 4090 D", "RTX 4090", "RTX 4090"]
    messages = [*map(make_message, cards), make_message("RTX 4090", "opengl")]
    engines = list(engine_discovery._engines_from_messages(messages, ""))
    assert [engine.at for engine in engines] == [0, 1, 2, 0]
    assert [engine.key for engine in engines] == [
        "vulkan:RTX 4090 D",
        "vulkan:RTX 4090",
        "vulkan:RTX 4090 #2",
        "opengl:RTX 4090",
    ]
