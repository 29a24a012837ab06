"""The rules of the house that a parser can check: who imports whom, and how much.

Reads the source only; nothing of rlxweb is imported here but in the last test, which
looks at a fresh interpreter.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.command_line import python
from tests.unit.floors import FLOORS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "rlxweb"

# What is neither NumPy nor in the standard library, and the one place it may enter.
ENTERS_AT = {
    "wgpu": "gpu/native.py",
    "js": "gpu/browser.py",
    "pyodide": "gpu/browser.py",
    "pyodide_js": "gpu/browser.py",
    "cupy": "backends/cuda.py",
    "mlx": "backends/mlx.py",
    "edfio": "io/demo.py",
    "click": "cli/",
    "rich": "cli/",
    "platformdirs": "calibration/cache_folder.py",
    "matplotlib": "cli/",
}
READS_ENVIRONMENT = ("cli/", "devices/policy.py")
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc", "manager", "base"}
MAX_FILE_LINES = 420
MAX_FUNCTION_LINES = 60
NOT_AT_IMPORT = ("wgpu", "scipy", "matplotlib", "edfio", "click", "rich")

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


@cache
def tree(path: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


NAMES = {dotted_name(path): path for path in MODULES}


def imports_in(node: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted module) for every import under `node`, lazy ones too.

    `from rlxweb.gpu import port` counts as rlxweb.gpu.port, a module.
    """
    for child in ast.walk(node):
        if isinstance(child, ast.Import):
            yield from ((child.lineno, alias.name) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"relative import on line {child.lineno}"
            module = child.module or ""
            for alias in child.names:
                full = f"{module}.{alias.name}"
                yield child.lineno, full if full in NAMES else module


def allowed_place(where: str, *rules: str) -> bool:
    """Is the file `where` one of the files, or in one of the folders/, of `rules`?"""
    return any(
        where.startswith(rule) if rule.endswith("/") else where == rule
        for rule in rules
    )


FLOOR = {room: at for at, floor in enumerate(FLOORS) for room in floor}


def test_every_room_is_in_the_table() -> None:
    """A new room says on which floor it stands before it imports anything."""
    assert {room(name) for name in NAMES} == set(FLOOR)


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_imports_point_down(path: Path) -> None:
    """No module imports from its own floor or one above, lazily or not."""
    here = room(dotted_name(path))
    wrong = [
        f"{place(path)}:{line} imports {name}"
        for line, name in imports_in(tree(path))
        if name.split(".")[0] == "rlxweb"
        and room(name) != here
        and FLOOR[room(name)] >= FLOOR[here]
    ]
    assert not wrong


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_third_parties_enter_by_one_door(path: Path) -> None:
    """Beyond the standard library and NumPy, each library has one place."""
    wrong = []
    for line, name in imports_in(tree(path)):
        top = name.split(".")[0]
        if top in sys.stdlib_module_names or top in ("numpy", "rlxweb"):
            continue
        if top not in ENTERS_AT or not allowed_place(place(path), ENTERS_AT[top]):
            wrong.append(f"{place(path)}:{line} imports {name}")
    assert not wrong


NETWORK = {"ftplib", "http", "imaplib", "poplib", "smtplib", "socket", "socketserver"}
NETWORK |= {"ssl", "telnetlib", "urllib.request", "webbrowser", "xmlrpc"}


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_nothing_asks_a_network(path: Path) -> None:
    """As the manual promises: no command sends anything anywhere."""
    wrong = [
        f"{place(path)}:{line} imports {name}"
        for line, name in imports_in(tree(path))
        if name in NETWORK or name.split(".")[0] in NETWORK
    ]
    assert not wrong


def test_kernels_and_port_meet_in_one_backend() -> None:
    """Only the WebGPU backend knows both shader text and the GPU port."""
    both = [
        place(path)
        for path in MODULES
        if {"gpu", "kernels"}
        <= {
            room(dotted_name(path)),
            *(
                room(name)
                for _, name in imports_in(tree(path))
                if name.split(".")[0] == "rlxweb"
            ),
        }
    ]
    assert [name for name in both if not name.startswith("backends/webgpu")] == []


def test_no_event_loop_is_named() -> None:
    """The core is `async def` and leaves the loop to its caller; one file knows it."""
    loops = {"asyncio", "trio", "anyio"}
    assert not [
        f"{place(path)}:{line}"
        for path in MODULES
        for line, name in imports_in(tree(path))
        if name.split(".")[0] in loops and place(path) != "gpu/beside.py"
    ]


def imported_at_load(path: Path) -> set[str]:
    """The modules of rlxweb that loading this one loads."""
    names = set()
    stack: list[ast.AST] = list(tree(path).body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {name for _, name in imports_in(node)}
        else:
            stack += ast.iter_child_nodes(node)
    return names & set(NAMES)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Whichever module is imported first, it loads."""
    needs = {name: imported_at_load(path) for name, path in NAMES.items()}
    while free := {name for name, wanted in needs.items() if not wanted}:
        needs = {
            name: wanted - free for name, wanted in needs.items() if name not in free
        }
    assert not needs, "in or above a circle: " + ", ".join(sorted(needs))


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_environment_is_read_in_two_places(path: Path) -> None:
    """os.environ and os.getenv occur in cli/ and devices/policy.py only."""
    if allowed_place(place(path), *READS_ENVIRONMENT):
        return
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    wrong = [
        f"{place(path)}:{node.lineno}"
        for node in ast.walk(tree(path))
        if (isinstance(node, ast.Attribute) and node.attr in names)
        or (isinstance(node, ast.Name) and node.id in names)
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and names & {alias.name for alias in node.names}
        )
    ]
    assert not wrong


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_every_module_says_what_it_owns(path: Path) -> None:
    """Every module opens with a docstring."""
    assert (ast.get_docstring(tree(path)) or "").strip()


def lines_of_code(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """From `def` to the end, the docstring not counted."""
    first, last = node.lineno, node.end_lineno or node.lineno
    head = node.body[0]
    documented = ast.get_docstring(node) is not None
    doc = (head.end_lineno or 0) - head.lineno + 1 if documented else 0
    return last - first + 1 - doc


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_functions_stay_short(path: Path) -> None:
    """A function longer than 60 lines is two functions."""
    long = [
        f"{place(path)}:{node.lineno} {node.name}: {lines_of_code(node)}"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and lines_of_code(node) > MAX_FUNCTION_LINES
    ]
    assert not long


def test_files_stay_short_and_are_named_for_what_they_own() -> None:
    """No file passes 420 lines, and none is called after nothing in particular."""
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text("utf-8").splitlines())
        for path in SOURCES
    }
    assert not {name: n for name, n in lengths.items() if n > MAX_FILE_LINES}
    assert not [
        name
        for name in lengths
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
