"""Rules of the package's architecture that can be checked from its sources: which
module imports which.

Reads the source only; nothing of rlxweb is imported here but in the last tests, which
look at processes of their own.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.cli_runners import ROOT, run_forked, run_python
from tests.unit.import_layers import LAYERS

PACKAGE = ROOT / "rlxweb"

# What is neither NumPy nor in the standard library, and the one place it may enter.
LIBRARY_IMPORTERS: dict[str, str | tuple[str, ...]] = {
    "wgpu": "gpu/wgpu_libraries.py",
    "wgpudawn": "gpu/wgpu_libraries.py",
    "js": ("gpu/browser_port.py", "ops/matmul/cpu/web_workers.py"),
    "pyodide": ("gpu/browser_port.py", "ops/matmul/cpu/web_workers.py"),
    "pyodide_js": "gpu/browser_port.py",
    "cupy": "engines/cupy_engine.py",
    "torch": "engines/torch_engine.py",
    "jax": "engines/jax_engine.py",
    "mlx": "engines/mlx_engine.py",
    "llvmlite": "codegen/llvm_compiler.py",
    "edfio": "io/demo.py",
    "fsspec": "io/remote.py",
    "zarr": "io/zarr_recording.py",
    "dask": "batch/cluster/",
    "distributed": "batch/cluster/",
    "click": "cli/",
    "rich": ("cli/", "trace/training/progress_bar.py"),
    "platformdirs": "core/cache_folder.py",
    "matplotlib": ("plot/", "cli/"),
    "pyarrow": "io/parquet_tables.py",
    "mne": "io/mne_reader.py",
    "onnx": "onnx/onnx_library_access.py",
    "soundfile": "io/libsndfile_reader.py",
    "h5py": "io/hdf5_reader.py",
    "scipy": ("io/preprocessing.py", "trace/training/lbfgs.py"),
    "sounddevice": "live/microphone_source.py",
    "pylsl": "live/lsl_source.py",
}
ENVIRONMENT_READERS = ("cli/", "core/environment.py")
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc", "manager", "base"}
HEAVY_LIBRARIES = (
    "wgpu",
    "scipy",
    "matplotlib",
    "edfio",
    "dask",
    "distributed",
    "click",
    "rich",
    "cupy",
    "torch",
    "jax",
    "mlx",
    "pyarrow",
    "mne",
    "soundfile",
    "h5py",
    "llvmlite",
    "onnx",
)

MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = sorted(
    path
    for folder, pattern in (
        ("rlxweb", "*.py"),
        ("rlxweb", "*.js"),
        ("shaders", "*.wgsl"),
        ("tests", "*.py"),
    )
    for path in (ROOT / folder).rglob(pattern)
)


def package_path(path: Path) -> str:
    """Return a module's path within the package, such as `gpu/wgpu_port.py`."""
    return path.relative_to(PACKAGE).as_posix()


def top_level_name(dotted: str) -> str:
    """Return `gpu` for rlxweb.gpu.wgpu_port and "" for rlxweb itself."""
    return [*dotted.split("."), ""][1]


def dotted_name(path: Path) -> str:
    """Return `rlxweb.gpu.wgpu_port` for that file, `rlxweb.gpu` for the package's
    own.
    """
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULE_FILES = {dotted_name(path): path for path in MODULES}


DOTTED_MODULE = re.compile(r"rlxweb(\.\w+)+")
"""Module name in a string, as given to `register_providers` and import_module."""

ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
MODULE_OR_ENVIRONMENT = re.compile(
    rf"[\"']{DOTTED_MODULE.pattern}[\"']|\b({'|'.join(ENVIRONMENT)})\b"
)
STATEMENT_FIELDS = frozenset(("body", "orelse", "handlers", "finalbody", "cases"))
"""Fields of statements that hold statements or parts with statements in them."""


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """Facts of a source file that the rules need, with line numbers; the syntax tree is
    not kept.
    """

    docstring: str
    imports: tuple[tuple[int, str], ...]
    modules_in_text: tuple[tuple[int, str], ...]
    loaded_modules: frozenset[str]
    environment_lines: tuple[int, ...]


@cache
def source_facts(path: Path) -> SourceFacts:
    """Parse a file and walk it once."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, str(path))
    # Most files name neither a module in text nor the environment, and imports are
    # found without a look into expressions.
    needs_walk = bool(MODULE_OR_ENVIRONMENT.search(text))
    nodes = list(ast.walk(tree)) if needs_walk else []
    return SourceFacts(
        docstring=(ast.get_docstring(tree) or "").strip(),
        imports=tuple(
            imported
            for node in iter_statements(tree)
            for imported in imported_names(node)
        ),
        modules_in_text=tuple(
            (node.lineno, node.value)
            for node in nodes
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and DOTTED_MODULE.fullmatch(node.value)
        ),
        loaded_modules=frozenset(modules_imported_at_load(tree)),
        environment_lines=tuple(n.lineno for n in nodes if is_environment_access(n)),
    )


def iter_statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Iterate over all statements, those within others too."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        for name in STATEMENT_FIELDS.intersection(node._fields):
            pending += getattr(node, name)


def imported_names(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Iterate over (line, dotted module) of all names of an import.

    `from rlxweb.gpu import port_protocol` counts as rlxweb.gpu.port_protocol, a module.
    """
    if isinstance(node, ast.Import):
        yield from ((node.lineno, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"relative import on line {node.lineno}"
        module = node.module or ""
        for alias in node.names:
            full = f"{module}.{alias.name}"
            yield node.lineno, full if full in MODULE_FILES else module


def modules_imported_at_load(tree: ast.Module) -> set[str]:
    """Return rlxweb's modules that are loaded by loading this one."""
    names = set()
    stack: list[ast.AST] = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        names |= {name for _, name in imported_names(node)}
        stack += ast.iter_child_nodes(node)
    return names & set(MODULE_FILES)


def is_environment_access(node: ast.AST) -> bool:
    """Return whether a node is os.environ, os.getenv, or an import of one of them."""
    if isinstance(node, ast.ImportFrom):
        names = {alias.name for alias in node.names}
        return node.module == "os" and bool(ENVIRONMENT & names)
    if isinstance(node, ast.Attribute):
        return node.attr in ENVIRONMENT
    return isinstance(node, ast.Name) and node.id in ENVIRONMENT


def iter_imports() -> Iterator[tuple[Path, int, str]]:
    """Iterate over (file, line, dotted module) of every import in rlxweb, lazy ones
    too.
    """
    for path in MODULES:
        for line, name in source_facts(path).imports:
            yield path, line, name


def is_allowed_path(path: str, *rules: str) -> bool:
    """Return whether a path is one of `rules` or lies in one of their folders."""
    return any(
        path.startswith(rule) if rule.endswith("/") else path == rule for rule in rules
    )


LAYER_INDEX = {name: at for at, layer in enumerate(LAYERS) for name in layer}


def test_every_package_is_in_the_layer_table() -> None:
    """A new package must be assigned to a layer before it imports anything."""
    assert {top_level_name(name) for name in MODULE_FILES} == set(LAYER_INDEX)


def test_op_families_and_the_device_choice_list_their_files() -> None:
    """The docstrings of the folders of op families and of the device choice name each
    of their files and folders.
    """
    inits = (PACKAGE / "ops").glob("*/**/__init__.py")
    for init in (*inits, *(PACKAGE / "select").rglob("__init__.py")):
        text = source_facts(init).docstring
        listed = re.findall(r"^([a-z]\w*(?:\.py|\.js|/)) ", text, re.MULTILINE)
        present = [
            f"{path.name}/" if path.is_dir() else path.name
            for path in init.parent.iterdir()
            # A folder that was removed may still hold what Python compiled.
            if not path.name.startswith("__")
            and (path.is_file() or any(path.glob("*.py")))
        ]
        assert sorted(listed) == sorted(present), package_path(init)


def test_imports_go_to_lower_layers() -> None:
    """No module imports from its own layer or one above, lazily or not."""
    wrong = []
    for path, line, name in iter_imports():
        importer = top_level_name(dotted_name(path))
        if (
            name.split(".")[0] == "rlxweb"
            and top_level_name(name) != importer
            and LAYER_INDEX[top_level_name(name)] >= LAYER_INDEX[importer]
        ):
            wrong.append(f"{package_path(path)}:{line} imports {name}")
    assert wrong == []


def test_nothing_imports_rlx() -> None:
    """rlxweb.rlx depends on rlxweb; nothing in rlxweb depends on it.

    A name of a module given as text counts, as for `register_providers`.
    """
    wrong = [
        f"{package_path(path)}:{line} names {name}"
        for path in MODULES
        if top_level_name(dotted_name(path)) != "rlx"
        for line, name in (
            *source_facts(path).imports,
            *source_facts(path).modules_in_text,
        )
        if name == "rlxweb.rlx" or name.startswith("rlxweb.rlx.")
    ]
    assert wrong == []
    texts = {name for path in MODULES for _, name in source_facts(path).modules_in_text}
    assert {
        "rlxweb.ir.graph",
        "rlxweb.runtime.graph_files.graph_writer",
    } <= texts  # of both tables


def _allowed_importers(library: str) -> tuple[str, ...]:
    paths = LIBRARY_IMPORTERS[library]
    return (paths,) if isinstance(paths, str) else paths


def test_each_library_is_imported_in_one_place() -> None:
    """Each library beyond the standard library and NumPy is imported in one place."""
    wrong = []
    for path, line, name in iter_imports():
        top = name.split(".")[0]
        if top in sys.stdlib_module_names or top in ("numpy", "rlxweb"):
            continue
        if top not in LIBRARY_IMPORTERS or not is_allowed_path(
            package_path(path), *_allowed_importers(top)
        ):
            wrong.append(f"{package_path(path)}:{line} imports {name}")
    assert wrong == []


NETWORK_MODULES = {
    "ftplib",
    "http",
    "imaplib",
    "poplib",
    "smtplib",
    "socket",
    "socketserver",
}
NETWORK_MODULES |= {"ssl", "telnetlib", "urllib.request", "webbrowser", "xmlrpc"}


def test_no_network_is_used() -> None:
    """No command uses a network, as the manual promises.

    What a page is served is for this machine; a test of the server says so.
    """
    importers = {
        package_path(path)
        for path, _, name in iter_imports()
        if name in NETWORK_MODULES or name.split(".")[0] in NETWORK_MODULES
    }
    assert importers == {"export/open_in_browser.py", "export/local_server.py"}


SHADER_MODULES = ("kernel_launch_records", "elementwise_wgsl", "row_reduction_wgsl")
"""Modules of `rlxweb.codegen` that write shader text and place it on a GPU."""


def test_only_the_webgpu_engine_imports_shaders_and_port() -> None:
    """Only the WebGPU engine knows both shader text and the GPU port."""
    topics_of: dict[Path, set[str]] = {path: set() for path in MODULES}
    for path, _, name in iter_imports():
        if name.removeprefix("rlxweb.codegen.") in SHADER_MODULES:
            topics_of[path].add("shaders")
        elif name.startswith("rlxweb.gpu"):
            topics_of[path].add("port")
    both = [
        package_path(path)
        for path, topics in topics_of.items()
        if topics == {"shaders", "port"}
    ]
    assert both
    assert [name for name in both if not name.startswith("engines/webgpu/")] == []


def test_only_two_files_import_an_event_loop() -> None:
    """The core is `async def` and leaves the event loop to its caller; one file imports
    it.

    zarr has a loop of its own, in which its stores are listed.
    """
    loops = {"asyncio", "trio", "anyio"}
    importers = {
        package_path(path)
        for path, _, name in iter_imports()
        if name.split(".")[0] in loops
    }
    assert importers == {"gpu/coroutine_runner.py", "io/zarr_recording.py"}


def test_no_circular_imports() -> None:
    """Any module can be imported first."""
    needs = {
        name: source_facts(path).loaded_modules for name, path in MODULE_FILES.items()
    }
    while free := {name for name, imported in needs.items() if not imported}:
        needs = {
            name: imported - free
            for name, imported in needs.items()
            if name not in free
        }
    assert not needs, "in or above a circle: " + ", ".join(sorted(needs))


def test_environment_is_read_in_two_places() -> None:
    """os.environ and os.getenv occur in cli/ and core/environment.py only."""
    wrong = [
        f"{package_path(path)}:{line}"
        for path in MODULES
        if not is_allowed_path(package_path(path), *ENVIRONMENT_READERS)
        for line in source_facts(path).environment_lines
    ]
    assert wrong == []


def test_every_module_has_a_docstring() -> None:
    """Every module opens with a docstring."""
    assert [
        package_path(path) for path in MODULES if not source_facts(path).docstring
    ] == []


def test_no_file_has_a_meaningless_name() -> None:
    """No file or folder is called utils, helpers or the like."""
    names = [path.relative_to(ROOT).as_posix() for path in SOURCES]
    assert not [
        name
        for name in names
        if FORBIDDEN_NAMES & {part.split(".")[0] for part in Path(name).parts}
    ]


def test_import_of_the_package_loads_no_heavy_library() -> None:
    """`import rlxweb` loads NumPy and no other installed library."""
    code = (
        "import sys, rlxweb\n"
        f"print(*(m for m in {HEAVY_LIBRARIES!r} if m in sys.modules))"
    )
    result = run_python("-c", code)
    assert (result.code, result.out.split()) == (0, []), result.err


NATIVE_LIBRARIES = ("array_api_compat", "cupy", "torch", "jax", "jaxlib", "mlx")
RUN_COMMAND = "from rlxweb.cli.main import main\nwith suppress(SystemExit): main({!r})"
USES_OF_OTHER_ENGINES = {
    "the names": "rlx.parse_device('torch-cpu'), rlx.parse_device('cuda')",
    "peaks on the CPU": "rlx.welch_peaks(np.ones(256, np.float32), fs=1, k=1)",
    "auto": "rlx.Session('auto').compile(graph).run({'x': np.ones(4, np.float32)})",
    "a search for the fastest": "rlx.fastest_device_for(graph)",
    "GraphDevices": "rlx.GraphDevices(graph).devices, rlx.available_devices()",
    "a report": "rlx.device_report(), rlx.device_report(graph)",
    "another engine": "rlx.Session('cpu'), rlx.is_available('gpu')",
    "one that is missing": (
        "with suppress(rlx.RlxError): rlx.Session('cuda')\n"
        "with suppress(rlx.RlxError): rlx.Session('rocm')\n"
        "with suppress(rlx.RlxError): rlx.Session('tpu')"
    ),
    "rlxweb --help": RUN_COMMAND.format(["--help"]),
    "rlxweb devices": RUN_COMMAND.format(["devices", "-v"]),
    "rlxweb welch --help": RUN_COMMAND.format(["welch", "--help"]),
}


def test_native_libraries_load_only_when_their_engine_is_named() -> None:
    """No import loads a native library where no driver is found.

    All in one process, forked from one that has loaded most of ours; what loaded a
    library first is named.
    """
    code = (
        "import io, sys\n"
        "from contextlib import redirect_stdout, suppress\n"
        "import numpy as np, rlxweb as rlx\n"
        "from rlxweb.engines import library_detection\n"
        "library_detection._can_load_library = library_detection._path_exists = "
        "lambda name: False\n"
        "graph = rlx.Graph('g')\n"
        "graph.set_outputs([graph.input('x', (4,)) * 2])\n"
        f"for name, code in {USES_OF_OTHER_ENGINES!r}.items():\n"
        "    with redirect_stdout(io.StringIO()): exec(code)\n"
        f"    loaded = [m for m in {NATIVE_LIBRARIES!r} if m in sys.modules]\n"
        "    if loaded: sys.exit(f'{name} loaded {loaded}')\n"
    )
    result = run_forked("-c", code, RLX_CALIBRATION="off")
    assert result.code == 0, result.err
