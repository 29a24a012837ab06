"""Shared fixtures and plugins of all tests: which engines this machine has, and which
it must have.

A test that needs an engine takes the `adapter` fixture or a `requires_*` marker. On a
bare machine such a test is skipped; `--require NAME` turns the skip into a failure, and
CI=true requires the three WGSL adapters, Dawn, a browser, PyTorch, JAX, MLX and
llvmlite. A GPU or a library counts as present when it has computed something and
answered right, the compiler when it knows the processor, and a browser when it tells
its version: whether its WebGPU works is for its tests to find.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from rlxweb.core.errors import AdapterMissing
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import (
    AdapterRequest,
    BufferRange,
    DeviceFacts,
    Dispatch,
    GpuPort,
)
from tests import xdist_worker_values

PLUGINS = (
    "cli_runners",
    "pytest_timeouts",
    "skip_missing_libraries",
    "pytest_fork_server",
    "playwright_event_loop",
    "thread_process_leak_check",
    "clean_state",
    "suite_tiers",
    "duration_report",
)
WASM_PLUGINS = ("clean_state", "suite_tiers")
IN_CI = os.environ.get("CI", "").lower() in ("1", "true")
REQUIRED_IN_CI = ("wgpu", "browser", "dawn", "fast", "torch", "jax", "mlx")
pytest_plugins = [
    f"tests.{name}"
    for name in (WASM_PLUGINS if sys.platform == "emscripten" else PLUGINS)
]

ADAPTERS = {
    "lavapipe": AdapterRequest(backends=("vulkan",), name="llvmpipe"),
    "opengl": AdapterRequest(backends=("opengl",), name="llvmpipe"),
    "swiftshader": AdapterRequest(backends=("vulkan",), name="SwiftShader"),
}
MISSING_FEATURES = {
    "opengl": {"f16", "subgroup"},
    "swiftshader": {"f16"},
    "torch-cpu": {"u32"},
    "mlx": {"f64"},
}
"""Types and features that the tests ask for and the engine lacks, by engine.

What a test or a case needs is its mark `feature`; for an engine of this table it is not
collected. Two tests of tests/ops hold the table against the engines, by `lacked`.
"""
ENGINE_LIBRARIES = {"torch": "torch", "jax": "jax.numpy", "mlx": "mlx.core"}
"""Module with `arange` of each library that is an engine, by library."""
SOFTWARE_DRIVERS = (
    *sorted(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json")),
    Path("/usr/lib/chromium/vk_swiftshader_icd.json"),
)
PROBE_SHADER = """
@group(0) @binding(0) var<storage, read_write> cells: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= arrayLength(&cells)) { return; }
    cells[id.x] = cells[id.x] * 2u + 1u;
}
"""

USED_ADAPTERS: set[str] = set()
"""Summary lines naming the adapters that tests ran on."""
xdist_worker_values.register_collector("adapters", lambda: sorted(USED_ADAPTERS))

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True
)


def show_drivers_to_loader() -> None:
    """Make both software Vulkan drivers visible unless the caller chose some; must run
    before wgpu is loaded.
    """
    driver_paths = [str(path) for path in SOFTWARE_DRIVERS if path.exists()]
    if driver_paths:
        os.environ.setdefault("VK_ICD_FILENAMES", os.pathsep.join(driver_paths))
    # EGL asks Wayland first, which complains on stderr when this is unset.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())


async def run_probe(port: GpuPort, request: AdapterRequest) -> DeviceFacts:
    """Open the adapter and run one kernel on it; check the result."""
    facts = await port.open(request)
    try:
        cells = np.arange(100, dtype=np.uint32)
        handle = port.create_buffer(cells.nbytes, "storage")
        port.write(handle, 0, memoryview(cells).cast("B"))
        kernel = await port.create_pipeline(PROBE_SHADER, ("write",), {})
        buffer_range = BufferRange(handle, 0, cells.nbytes)
        port.submit([Dispatch(kernel, (buffer_range,), (2, 1, 1), "probe")])
        output = np.frombuffer(await port.read(handle, 0, cells.nbytes), np.uint32)
        np.testing.assert_array_equal(output, cells * 2 + 1)
    finally:
        await port.close()
    return facts


@cache
def adapter_facts(name: str) -> DeviceFacts:
    """Return the facts of one of ADAPTERS (of the best one for ""); raise
    AdapterMissing if absent.
    """
    from rlxweb.gpu.wgpu_port import WgpuPort

    request = ADAPTERS.get(name, AdapterRequest())
    facts = run_blocking(run_probe(WgpuPort(), request))
    assert request.name.lower() in facts.name.lower(), facts
    assert not request.backends or facts.backend in request.backends, facts
    USED_ADAPTERS.add(
        f"{name or 'best'}: {facts.name} ({facts.backend}, {facts.driver})"
    )
    return facts


def probe_adapter(name: str) -> str:
    """Return why the adapter is missing, or "" when it works."""
    try:
        adapter_facts(name)
    except (AdapterMissing, ImportError) as error:
        return f"{name or 'any adapter'}: {error}"
    return ""


def find_browser() -> str | None:
    """Return the path of the system's Chromium, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def probe_browser() -> str:
    """Return why no browser starts, or ""."""
    path = find_browser()
    if path is None:
        return "browser: no chromium on PATH"
    process = subprocess.run(
        [path, "--version"], capture_output=True, check=False, timeout=60
    )
    return "" if process.returncode == 0 else f"browser: {process.stderr.decode()}"


def probe_library(name: str) -> str:
    """Return why a library that is an engine cannot be used, or ""."""
    try:
        is_correct = int(import_module(ENGINE_LIBRARIES[name]).arange(5).sum()) == 10
    except Exception as error:  # without a driver or its native half: its own kinds
        return f"{name}: {type(error).__name__}: {error}"
    return "" if is_correct else f"{name}: 0 + 1 + 2 + 3 + 4 is not 10 there"


def probe_compiler() -> str:
    """Return why nothing can be compiled for the CPU, or ""."""
    from rlxweb.codegen.llvm_compiler import host_cpu

    try:
        USED_ADAPTERS.add(f"compiled code: {host_cpu().description}")
    except AdapterMissing as error:
        return f"fast: {error}"
    return ""


def probe_dawn() -> str:
    """Return why there is no Dawn, or ""."""
    from rlxweb.gpu.wgpu_port import WgpuPort

    try:
        facts = run_blocking(run_probe(WgpuPort(library="wgpudawn"), AdapterRequest()))
    except AdapterMissing as error:
        return f"dawn: {error}"
    USED_ADAPTERS.add(f"dawn: {facts.name} ({facts.backend}, {facts.driver})")
    return ""


PROBES: dict[str, Callable[[], str]] = {
    "wgpu": lambda: probe_adapter(""),
    "lavapipe": lambda: probe_adapter("lavapipe"),
    "opengl": lambda: probe_adapter("opengl"),
    "swiftshader": lambda: probe_adapter("swiftshader"),
    "browser": probe_browser,
    "dawn": probe_dawn,
    "fast": probe_compiler,
    **{name: partial(probe_library, name) for name in ENGINE_LIBRARIES},
}


@cache
def missing_reason(engine: str) -> str:
    """Return why `engine` is missing, or ""; probed once per session."""
    return PROBES[engine]()


def required_engines(config: pytest.Config) -> set[str]:
    """Return the engines whose absence is a failure; `wgpu` stands for all three
    adapters.
    """
    names = set(config.getoption("--require"))
    return names | set(ADAPTERS) if "wgpu" in names else names


def require_engine(engine: str, config: pytest.Config) -> None:
    """Skip or fail the running test when `engine` is missing."""
    reason = missing_reason(engine)
    if reason and engine in required_engines(config):
        pytest.fail(f"required, but not here: {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--require NAME`, which may be repeated."""
    parser.addoption(
        "--require",
        metavar="NAME",
        action="append",
        default=[],
        choices=tuple(PROBES),
        help=f"fail, do not skip, where this is missing: {', '.join(PROBES)} "
        "(wgpu: all three adapters)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Show the drivers to the loader; in CI take the hypothesis profile of CI."""
    show_drivers_to_loader()
    config.pluginmanager.register(xdist_worker_values)
    if not config.getoption("--full"):
        # Mesa's optimiser takes longer than all that it makes faster, and a shader for
        # vectors of 128 bits is compiled sooner than for those of 256.
        os.environ.setdefault("GALLIVM_PERF", "nopt")
        os.environ.setdefault("LP_NATIVE_VECTOR_WIDTH", "128")
        # Workers have the processors already; SwiftShader's threads race in its stead.
        os.environ.setdefault("LP_NUM_THREADS", "1")
    # Workers share the processors: threads of BLAS would wait in loops for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if IN_CI:
        config.option.require = [*config.option.require, *REQUIRED_IN_CI]
        hypothesis.settings.load_profile("ci")
    elif not config.getoption("--hypothesis-profile", None):
        hypothesis.settings.load_profile("default")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test as one that requires the library that one of its parameters names."""
    spec = getattr(item, "callspec", None)
    for value in spec.params.values() if spec is not None else ():
        name = value.removesuffix("-cpu") if isinstance(value, str) else ""
        if name in ENGINE_LIBRARIES:
            item.add_marker(f"requires_{name}")


@pytest.hookimpl(tryfirst=True)  # samples are picked from what there is
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Deselect cases whose engine is known to lack a needed feature."""
    deselected = {item for item in items if unsupported_features(item)}
    config.hook.pytest_deselected(items=[item for item in items if item in deselected])
    items[:] = [item for item in items if item not in deselected]


def unsupported_features(item: pytest.Item) -> set[str]:
    """Return what a test is marked to need and an engine among its parameters lacks."""
    needed = {word for mark in item.iter_markers("feature") for word in mark.args}
    spec = getattr(item, "callspec", None)
    values = () if spec is None else spec.params.values()
    engines = [value for value in values if isinstance(value, str)]
    return {
        word for name in engines for word in needed & MISSING_FEATURES.get(name, set())
    }


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip or fail a test whose `requires_*` marks name an engine that is not here."""
    for mark in item.iter_markers():
        if mark.name.startswith("requires_"):
            require_engine(mark.name.removeprefix("requires_"), item.config)


@pytest.fixture(scope="session", params=list(ADAPTERS))
def adapter(request: pytest.FixtureRequest) -> AdapterRequest:
    """Request for each of the three adapters in turn, after a probe has run on it."""
    require_engine(request.param, request.config)
    return ADAPTERS[request.param]


@pytest.fixture
def rng() -> np.random.Generator:
    """Random generator with the same seed for each test."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def eeg_recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with `test.edf` and `test.bdf`, laid out as recorders write them."""
    from tests.edf_bdf_recordings import write_eeg_recordings

    return write_eeg_recordings(tmp_path_factory.mktemp("eeg"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the adapters used, so that the log shows what a passing run covered."""
    terminalreporter.section("adapters")
    used = {
        line
        for part in xdist_worker_values.collected_values("adapters")
        for line in part
    }
    for line in sorted(used) or ["no test ran on a WGSL adapter"]:
        terminalreporter.line(line)
    terminalreporter.line(f"Python {sys.version.split()[0]}, NumPy {np.__version__}")
