"""The rules of the house that a parser can check: who imports whom.

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

from tests.command_line import ROOT, forked, python
from tests.unit.floors import FLOORS

PACKAGE = ROOT / "rlxweb"

# What is neither NumPy nor in the standard library, and the one place it may enter.
ENTERS_AT: dict[str, str | tuple[str, ...]] = {
    "wgpu": "gpu/libraries.py",
    "wgpudawn": "gpu/libraries.py",
    "js": ("gpu/browser.py", "host/workers.py"),
    "pyodide": ("gpu/browser.py", "host/workers.py"),
    "pyodide_js": "gpu/browser.py",
    "cupy": "backends/cupy_arrays.py",
    "torch": "backends/torch_arrays.py",
    "jax": "backends/jax_arrays.py",
    "mlx": "backends/mlx_arrays.py",
    "llvmlite": "machine/library.py",
    "edfio": "io/demo.py",
    "fsspec": "io/remote.py",
    "zarr": "io/zarr_store.py",
    "dask": "dask/",
    "distributed": "dask/",
    "click": "cli/",
    "rich": ("cli/", "training/meter.py"),
    "platformdirs": "calibration/cache_folder.py",
    "matplotlib": ("plot/", "cli/"),
    "pyarrow": "io/parquet.py",
    "mne": "io/mne_raw.py",
    "onnx": "onnx/library.py",
    "soundfile": "io/audio.py",
    "h5py": "io/hdf5.py",
    "scipy": ("io/preparing.py", "training/lbfgs.py"),
    "sounddevice": "live/microphone.py",
    "pylsl": "live/lsl.py",
}
READS_ENVIRONMENT = ("cli/", "devices/policy.py")
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc", "manager", "base"}
NOT_AT_IMPORT = (
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


def place(path: Path) -> str:
    """`gpu/native.py` for that module."""
    return path.relative_to(PACKAGE).as_posix()


def room(dotted: str) -> str:
    """`gpu` for rlxweb.gpu.native; "" for rlxweb itself."""
    return [*dotted.split("."), ""][1]


def dotted_name(path: Path) -> str:
    """`rlxweb.gpu.native` for that file, `rlxweb.gpu` for the package's own."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {dotted_name(path): path for path in MODULES}


DOTTED = re.compile(r"rlxweb(\.\w+)+")
"""The name of a module as text, as `publish`, `hand_down` and import_module take it."""

ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
NAMED_IN_TEXT = re.compile(rf"[\"']{DOTTED.pattern}[\"']|\b({'|'.join(ENVIRONMENT)})\b")
BLOCKS = frozenset(("body", "orelse", "handlers", "finalbody", "cases"))
"""Fields of statements that hold statements, or what holds some."""


@dataclass(frozen=True, slots=True)
class Read:
    """What the rules below ask of a file, each with its line; its tree is not kept."""

    words: str
    imports: tuple[tuple[int, str], ...]
    modules_in_text: tuple[tuple[int, str], ...]
    at_load: frozenset[str]
    environment: tuple[int, ...]


@cache
def read(path: Path) -> Read:
    """The file, parsed and walked once."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, str(path))
    # Most files name neither a module in text nor the environment, and imports are
    # found without a look into expressions.
    is_asking = bool(NAMED_IN_TEXT.search(text))
    nodes = list(ast.walk(tree)) if is_asking else []
    return Read(
        words=(ast.get_docstring(tree) or "").strip(),
        imports=tuple(one for node in statements(tree) for one in imported_by(node)),
        modules_in_text=tuple(
            (node.lineno, node.value)
            for node in nodes
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and DOTTED.fullmatch(node.value)
        ),
        at_load=frozenset(imported_at_load(tree)),
        environment=tuple(n.lineno for n in nodes if asks_environment(n)),
    )


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Iterate over all statements, those within others too."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        for name in BLOCKS.intersection(node._fields):
            left += getattr(node, name)


def imported_by(node: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted module) for all that an import names.

    `from rlxweb.gpu import port` counts as rlxweb.gpu.port, a module.
    """
    if isinstance(node, ast.Import):
        yield from ((node.lineno, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"relative import on line {node.lineno}"
        module = node.module or ""
        for alias in node.names:
            full = f"{module}.{alias.name}"
            yield node.lineno, full if full in NAMES else module


def imported_at_load(tree: ast.Module) -> set[str]:
    """The modules of rlxweb that loading this one loads."""
    names = set()
    stack: list[ast.AST] = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        names |= {name for _, name in imported_by(node)}
        stack += ast.iter_child_nodes(node)
    return names & set(NAMES)


def asks_environment(node: ast.AST) -> bool:
    """Tell whether a node is os.environ, os.getenv, or an import of one of them."""
    if isinstance(node, ast.ImportFrom):
        names = {alias.name for alias in node.names}
        return node.module == "os" and bool(ENVIRONMENT & names)
    if isinstance(node, ast.Attribute):
        return node.attr in ENVIRONMENT
    return isinstance(node, ast.Name) and node.id in ENVIRONMENT


def imports() -> Iterator[tuple[Path, int, str]]:
    """(file, line, dotted module) for every import of rlxweb, lazy ones too."""
    for path in MODULES:
        for line, name in read(path).imports:
            yield path, line, name


def allowed_place(where: str, *rules: str) -> bool:
    """Tell whether the file `where` is one of `rules` or in a folder/ of them."""
    return any(
        where.startswith(rule) if rule.endswith("/") else where == rule
        for rule in rules
    )


FLOOR = {room: at for at, floor in enumerate(FLOORS) for room in floor}


def test_every_room_is_in_the_table() -> None:
    """A new room says on which floor it stands before it imports anything."""
    assert {room(name) for name in NAMES} == set(FLOOR)


def test_imports_point_down() -> None:
    """No module imports from its own floor or one above, lazily or not."""
    wrong = []
    for path, line, name in imports():
        here = room(dotted_name(path))
        if (
            name.split(".")[0] == "rlxweb"
            and room(name) != here
            and FLOOR[room(name)] >= FLOOR[here]
        ):
            wrong.append(f"{place(path)}:{line} imports {name}")
    assert wrong == []


def test_nothing_imports_rlx() -> None:
    """RLX's names and formulas rest on rlxweb; nothing in rlxweb rests on them.

    A name of a module given as text counts, as in `publish` and `hand_down`.
    """
    wrong = [
        f"{place(path)}:{line} names {name}"
        for path in MODULES
        if room(dotted_name(path)) != "rlx"
        for line, name in (*read(path).imports, *read(path).modules_in_text)
        if name == "rlxweb.rlx" or name.startswith("rlxweb.rlx.")
    ]
    assert wrong == []
    texts = {name for path in MODULES for _, name in read(path).modules_in_text}
    assert {"rlxweb.ir.graph", "rlxweb.graphfile.write"} <= texts  # of both tables


def _doors(library: str) -> tuple[str, ...]:
    own = ENTERS_AT[library]
    return (own,) if isinstance(own, str) else own


def test_third_parties_enter_by_one_door() -> None:
    """Beyond the standard library and NumPy, each library has one place."""
    wrong = []
    for path, line, name in imports():
        top = name.split(".")[0]
        if top in sys.stdlib_module_names or top in ("numpy", "rlxweb"):
            continue
        if top not in ENTERS_AT or not allowed_place(place(path), *_doors(top)):
            wrong.append(f"{place(path)}:{line} imports {name}")
    assert wrong == []


NETWORK = {"ftplib", "http", "imaplib", "poplib", "smtplib", "socket", "socketserver"}
NETWORK |= {"ssl", "telnetlib", "urllib.request", "webbrowser", "xmlrpc"}


def test_nothing_asks_a_network() -> None:
    """No command asks a network, as the manual promises.

    What a page is served is for this machine; a test of the server says so.
    """
    asks = {
        place(path)
        for path, _, name in imports()
        if name in NETWORK or name.split(".")[0] in NETWORK
    }
    assert asks == {"pages/browser.py", "pages/server.py"}


def test_kernels_and_port_meet_in_one_backend() -> None:
    """Only the WebGPU backend knows both shader text and the GPU port."""
    knows = {path: {room(dotted_name(path))} for path in MODULES}
    for path, _, name in imports():
        if name.split(".")[0] == "rlxweb":
            knows[path].add(room(name))
    both = [place(path) for path, rooms in knows.items() if {"gpu", "kernels"} <= rooms]
    assert both
    assert [name for name in both if not name.startswith("backends/webgpu")] == []


def test_no_event_loop_is_named() -> None:
    """The core is `async def` and leaves the loop to its caller; one file knows it.

    zarr has a loop of its own, in which its stores are listed.
    """
    loops = {"asyncio", "trio", "anyio"}
    named = {place(path) for path, _, name in imports() if name.split(".")[0] in loops}
    assert named == {"gpu/beside.py", "io/zarr_store.py"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Whichever module is imported first, it loads."""
    needs = {name: read(path).at_load for name, path in NAMES.items()}
    while free := {name for name, wanted in needs.items() if not wanted}:
        needs = {
            name: wanted - free for name, wanted in needs.items() if name not in free
        }
    assert not needs, "in or above a circle: " + ", ".join(sorted(needs))


def test_environment_is_read_in_two_places() -> None:
    """os.environ and os.getenv occur in cli/ and devices/policy.py only."""
    wrong = [
        f"{place(path)}:{line}"
        for path in MODULES
        if not allowed_place(place(path), *READS_ENVIRONMENT)
        for line in read(path).environment
    ]
    assert wrong == []


def test_every_module_says_what_it_owns() -> None:
    """Every module opens with a docstring."""
    assert [place(path) for path in MODULES if not read(path).words] == []


def test_no_file_is_named_for_nothing_in_particular() -> None:
    """No file or folder is called utils, helpers or the like."""
    names = [path.relative_to(ROOT).as_posix() for path in SOURCES]
    assert not [
        name
        for name in names
        if FORBIDDEN_NAMES & {part.split(".")[0] for part in Path(name).parts}
    ]


def test_import_of_the_package_loads_no_heavy_library() -> None:
    """`import rlxweb` loads NumPy and nothing else that was installed."""
    code = (
        "import sys, rlxweb\n"
        f"print(*(m for m in {NOT_AT_IMPORT!r} if m in sys.modules))"
    )
    said = python("-c", code)
    assert (said.code, said.out.split()) == (0, []), said.err


NATIVE = ("array_api_compat", "cupy", "torch", "jax", "jaxlib", "mlx")
MAIN = "from rlxweb.cli.main import main\nwith suppress(SystemExit): main({!r})"
BEFORE_A_NATIVE_ENGINE_IS_NAMED = {
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
    "rlxweb --help": MAIN.format(["--help"]),
    "rlxweb devices": MAIN.format(["devices", "-v"]),
    "rlxweb welch --help": MAIN.format(["welch", "--help"]),
}


def test_no_native_library_is_loaded_before_its_engine_is_named() -> None:
    """No import loads a native library where no driver is found.

    All in one process, forked from one that has loaded most of ours; what loaded a
    library first is named.
    """
    code = (
        "import io, sys\n"
        "from contextlib import redirect_stdout, suppress\n"
        "import numpy as np, rlxweb as rlx\n"
        "from rlxweb.backends import presence\n"
        "presence._loads = presence._there = lambda name: False\n"
        "graph = rlx.Graph('g')\n"
        "graph.set_outputs([graph.input('x', (4,)) * 2])\n"
        f"for name, code in {BEFORE_A_NATIVE_ENGINE_IS_NAMED!r}.items():\n"
        "    with redirect_stdout(io.StringIO()): exec(code)\n"
        f"    loaded = [m for m in {NATIVE!r} if m in sys.modules]\n"
        "    if loaded: sys.exit(f'{name} loaded {loaded}')\n"
    )
    said = forked("-c", code, RLX_CALIBRATION="off")
    assert said.code == 0, said.err
