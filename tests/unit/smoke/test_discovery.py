"""Which engines are found: every adapter once, what is missing with its reason."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from rlxweb.device import Device
from rlxweb.smoke import discovery
from rlxweb.smoke import icds as icd_files
from rlxweb.smoke.discovery import discover
from rlxweb.smoke.icds import ICDS, icds, with_icds
from rlxweb.smoke.process import Bounds
from rlxweb.smoke.run import Settings, Trying, word_of
from tests.conftest import SOFTWARE_DRIVERS

forked = pytest.mark.usefixtures("forked_children")
BOUNDS = Bounds(start_s=60.0, total_s=110.0)
LAVAPIPE = str(SOFTWARE_DRIVERS[0])
CRASHES = """
#include <stdlib.h>
__attribute__((constructor)) static void begin(void) { abort(); }
"""


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, **more}


@forked
def test_every_device_is_there_or_says_why() -> None:
    """The CPU first; a missing one has a reason and nothing else."""
    found = discover(BOUNDS, environment())
    assert found[0].device == "cpu"
    assert not found[0].missing
    devices = {engine.device for engine in found}
    assert {d.label for d in Device} - devices <= {"gpu"}
    assert {"torch-cpu", "jax-cpu"} <= devices
    cuda = next(engine for engine in found if engine.device == "cuda")
    assert "NVIDIA" in cuda.missing
    assert len({engine.key for engine in found}) == len(found)


@pytest.mark.requires_wgpu
@forked
def test_the_drivers_of_the_environment_are_the_ones() -> None:
    """One that is named alone is found alone."""
    found = discover(BOUNDS, environment(VK_ICD_FILENAMES=LAVAPIPE))
    names = [e.adapter for e in found if e.device == "vulkan"]
    assert len(names) == 1
    assert "llvmpipe" in names[0]


def test_which_drivers_the_loader_looks_at(tmp_path: Path) -> None:
    """The loader looks at the drivers that are named, else at the system's folders."""
    two = os.pathsep.join(["/a.json", "/b.json"])
    assert icds({ICDS: two}) == ["/a.json", "/b.json"]
    assert icds({ICDS: "/a.json", "VK_DRIVER_FILES": "/c.json"}) == ["/c.json"]
    (tmp_path / "x.json").write_text("{}")
    was, icd_files._ICD_FOLDERS = icd_files._ICD_FOLDERS, (str(tmp_path),)
    try:
        assert icds({}) == [str(tmp_path / "x.json")]
    finally:
        icd_files._ICD_FOLDERS = was


@pytest.fixture
def crashing(tmp_path: Path) -> str:
    """The JSON file of a Vulkan driver that ends whoever loads it."""
    return driver(tmp_path, CRASHES)


def driver(tmp_path: Path, text: str) -> str:
    """The JSON file of a Vulkan driver made of that C."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "a C compiler makes the driver"
    source, library = tmp_path / "bad.c", tmp_path / "libbad.so"
    source.write_text(text)
    words = [compiler, "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(words, check=True, timeout=60)
    icd = {"library_path": str(library), "api_version": "1.3.0"}
    path = tmp_path / "bad_icd.json"
    path.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": icd}))
    return str(path)


@pytest.mark.requires_wgpu
@forked
def test_a_driver_that_crashes_where_it_is_listed_is_named(crashing: str) -> None:
    """A driver that crashes is named, and the others are tried without it."""
    both = environment(VK_ICD_FILENAMES=os.pathsep.join([LAVAPIPE, crashing]))
    found = discover(BOUNDS, both)
    (culprit,) = [engine for engine in found if engine.adapter == crashing]
    assert culprit.fell == "crashed"
    assert "SIGABRT" in culprit.why_fell
    (good,) = [e for e in found if e.device == "vulkan" and e.adapter != crashing]
    assert good.environment == {ICDS: LAVAPIPE}
    asked = Settings("quick", "samples/exp/3", BOUNDS, both)
    assert word_of(Trying(good, asked).run())[0] == "right"
    assert word_of(Trying(culprit, asked).run())[0] == "crashed"


@pytest.mark.requires_wgpu
@forked
def test_drivers_that_give_no_adapter_are_told(tmp_path: Path) -> None:
    """A file that is not there, one that is none, a library that is not: each by name.

    Old loaders give up where one file is broken; a good driver is tried all the same.
    """
    gone, odd, empty = (str(tmp_path / f"{name}.json") for name in "abc")
    Path(odd).write_text("{")
    Path(empty).write_text(json.dumps({"ICD": {"library_path": "./lib/none.so"}}))
    named = [gone, odd, empty, LAVAPIPE]
    found = discover(BOUNDS, environment(VK_ICD_FILENAMES=os.pathsep.join(named)))
    by_name = {e.adapter: e for e in found if e.device == "vulkan"}
    said = {gone: "No such file", odd: "does not say", empty: "lib/none.so"}
    for path, words in said.items():
        assert by_name[path].fell == "wrong"
        assert words in by_name[path].why_fell
    (good,) = (e for name, e in by_name.items() if name not in said)
    assert "llvmpipe" in good.adapter
    assert good.can_be_tried


CARDLESS = """
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


@forked
@pytest.mark.requires_wgpu
@pytest.mark.parametrize("is_added", [True, False])
def test_a_driver_without_a_card(is_added: bool, tmp_path: Path) -> None:
    """Wrong where the user added it; told, and no fault, where it is merely there."""
    icd = driver(tmp_path, CARDLESS)
    both = environment(VK_ICD_FILENAMES=os.pathsep.join([LAVAPIPE, icd]))
    found = discover(BOUNDS, both, [icd] if is_added else [])
    (one,) = (e for e in found if e.adapter == icd)
    assert (one.fell, one.why_fell if is_added else one.missing) == (
        "wrong" if is_added else "",
        "this driver finds no card",
    )
    assert sum(e.device == "vulkan" and e.can_be_tried for e in found) == 1


def test_dawn_without_an_adapter_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dawn's library alone is no engine, and none that is wrong."""
    monkeypatch.setattr(discovery, "blocker", lambda device: "")
    monkeypatch.setattr(discovery, "_listed", lambda *given: discovery.Listed(()))
    (one,) = discovery._by_dawn(BOUNDS, {})
    assert one.missing == "Dawn finds no adapter that it takes"


def test_added_drivers_stand_beside_those_there_are() -> None:
    """Added drivers are named by the variable that loaders of every age know."""
    was = {"VK_DRIVER_FILES": "/a.json", "OTHER": "1"}
    both = os.pathsep.join(["/a.json", "/b.json"])
    assert with_icds(was, ["/b.json"]) == {ICDS: both, "OTHER": "1"}
    assert with_icds({"OTHER": "1"}, []) == {"OTHER": "1"}


def test_two_adapters_of_one_name_are_two_engines() -> None:
    """Adapters of equal names are numbered in wgpu's order; longer names are others."""

    def card(name: str, backend: str = "vulkan") -> Mapping[str, object]:
        more = dict.fromkeys(("vendor", "driver", "compiler"), "")
        return {"adapter": name, "backend": backend, "software": False, **more}

    cards = ["RTX 4090 D", "RTX 4090", "RTX 4090"]
    said = [*map(card, cards), card("RTX 4090", "opengl")]
    made = list(discovery._numbered(said, ""))
    assert [engine.at for engine in made] == [0, 1, 2, 0]
    assert [engine.key for engine in made] == [
        "vulkan:RTX 4090 D",
        "vulkan:RTX 4090",
        "vulkan:RTX 4090 #2",
        "opengl:RTX 4090",
    ]
