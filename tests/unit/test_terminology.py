"""Names and docstrings of the package are in the field's terms.

`site/pages/contributing/renames.csv` lists what every former name is called now. These
tests read the sources only.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.cli_runners import ROOT

PACKAGE = ROOT / "rlxweb"
Function = ast.FunctionDef | ast.AsyncFunctionDef

SHARED_CLASS_NAMES = {"Graph"}
"""Class names that may be defined twice: RLX's names have classes of their own."""

BARE_WORDS = frozenset(
    "above added after again alone along apart around aside asked before begun below "
    "beside called cleared computed counted cut done drawn found given gone held how "
    "inside joined kept laid lying made marked merged most moved named needed noted of "
    "one opened outside over own placed put raced raised said settled shown some "
    "spread taken there together told turned wanted whole within written".split()
)
"""Participles, prepositions and pronouns that say nothing as the name of a function."""

PUBLIC_BARE_NAMES = frozenset(
    {
        "AperiodicFit.named",
        "ArrayResult.named",
        "ArrayResult.of",
        "Engine.put",
        "BandPower.named",
        "CompiledGraph.computed",
        "CompiledGraph.put",
        "DerivativeFunction.given",
        "DynamicCompiledGraph.computed",
        "DynamicCompiledGraph.put",
        "Function.given",
        "Function.held",
        "FusionTarget.of",
        "Graph.named",
        "Labels.along",
        "Learned.within",
        "HostEngine.put",
        "LibraryArrayEngine.put",
        "LoadedModel.computed",
        "LruCache.put",
        "ParsedTimes.begun",
        "TimeFrequency.named",
        "WebGpuArrayStore.put",
        "WebGpuEngine.put",
        "WelchPeaks.named",
        "WelchStream.over",
        "put",
        "_put",
        "shown",
        "spread",
        "Advice.before",
    }
)
"""Names that the manual or the generated reference documents, and `put`, which is the
verb of caches and of arrays that are placed on a device.
"""

FRAGMENT = re.compile(r"(What|Of|Those|That|So|Who|Whose|Where|How many)\b")
"""First words of a docstring that only continues the name of its function."""

RETIRED: dict[str, str] = {
    "(top level)": (
        "again alike asked beside crew doing elsewhere found given gone held here how "
        "joined kept made may_stop mended most moved one own pieces room said there "
        "wanted way ways"
    ),
    "batch": (
        "again alike asked begun crew elsewhere found given gone held here how joined "
        "made may_stop mended most moved of one own pieces room said taken there "
        "together told wanted way ways"
    ),
    "cli": (
        "again asked begun beside came elsewhere found given gone held how kept least "
        "made most of one others resident room said taken there together told wanted "
        "way ways"
    ),
    "codegen": (
        "again alike array_of asked begun beside came clearance code_of crew doing "
        "elsewhere found fours from_above given gone held here hired how in_parts "
        "joined joins kept laid laid_out least lent lies lying made making most moved "
        "of own pieces recipe recipes resident residents rivals room said settled "
        "shown tailed taken tape there together told turns wanted way ways workshop"
    ),
    "compiler": (
        "asked drop_needless found given held how joined joins kept least lies made "
        "most moved narrowing of one others own said spellings there together told "
        "turns wanted"
    ),
    "core": (
        "again array_of asked begun beside code_of crew forked found from_above given "
        "gone hand_down held here how in_parts joined kept laid laid_out lying made "
        "may_stop moved of one others own pieces room settled stopping taken telling "
        "there together told turns wanted whole_file workshop"
    ),
    "cost": (
        "elsewhere found from_above given least most moved one own rivals said taken "
        "told trips wanted"
    ),
    "engines": (
        "again alike array_of asked begun beside came code_of elsewhere found fours "
        "given gone held here how in_parts joined joins kept laid least lent lies "
        "lying made most moved of own recipe recipes resident residents rivals said "
        "settled tailed taken tape there together told turns wanted way ways workshop"
    ),
    "export": (
        "asked beside came found given held kept least made most of one own room said "
        "taken telling worth"
    ),
    "gpu": (
        "again asked awaited_here begun beside books cleared doing found given gone "
        "handed held how kept made may_stop most one pieces room said settled taken "
        "told turns unchecked wanted way"
    ),
    "io": (
        "again array_of asked bare beside found given gone held here how joined joins "
        "kept knows least lies made most moved of one own room said taken there told "
        "told_of uneven wanted"
    ),
    "ir": (
        "adding again alike array_of asked beside found from_above gone held here "
        "joined kept made most moved needless of one own pulled_back recipe said "
        "spelled taken telling there together told turns uneven wanted"
    ),
    "live": ("asked begun came doing found made most one own there told told_of"),
    "onnx": (
        "again alike array_of asked beside found given gone held kept least lies made "
        "most moved of own picking room said staying stays taken there told trips "
        "turns way ways"
    ),
    "ops": (
        "again alike array_of asked bare begun beside came clearance code_of crew "
        "doors elsewhere found fours from_above given gone held here hired how "
        "in_parts joined joins laid laid_out least lent lies lying making most moved "
        "of own picking pieces pulled_back put_back recipes remapped resident "
        "residents rivals room said settled shown spelled tailed taken tape telling "
        "there together told turns wanted way ways workshop"
    ),
    "plot": (
        "array_of asked beside doing least most of one own room said settled taken "
        "way ways"
    ),
    "results": ("beside doing found from_above kept most one own room said there told"),
    "rlx": ("doing found given how made one own way"),
    "runtime": (
        "again array_of awaited_here begun done_again found given gone held kept "
        "knows least lent lying made most moved of one own room said settled staying "
        "stays taken there told wanted way ways"
    ),
    "select": (
        "again asked begun beside doing done_again found given gone held how kept "
        "least made most one own resident said settled taken telling there told trips "
        "wanted way ways works worth"
    ),
    "signal": (
        "again alike array_of average_held average_there awaited_here begun beside "
        "cleared done_again door found given gone held here joined kept laid_out "
        "least lies made most moved of rows_there said settled stays taken there "
        "turns uneven wanted way ways"
    ),
    "smoke": (
        "again alike asked begun beside doing elsewhere found given gone here how "
        "joined least made most moved of own resident there told told_of wanted way "
        "ways"
    ),
    "trace": (
        "alike array_of asked awaited_here begun found gone held_call how joined kept "
        "made most of one own said settled spelled stays there wanted way"
    ),
}
"""Former names, by package: each had another meaning for every module that used it."""


@cache
def trees(folder: Path = PACKAGE) -> dict[str, ast.Module]:
    """Return the syntax tree of every module below a folder by its path."""
    return {
        str(path.relative_to(folder)): ast.parse(path.read_text("utf-8"))
        for path in sorted(folder.rglob("*.py"))
    }


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield (qualified name, node) of every function and class below a node."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function | ast.ClassDef):
            yield prefix + node.name, node
            yield from definitions(node, f"{prefix}{node.name}.")
        else:
            yield from definitions(node, prefix)


def identifiers(path: str, tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module defines: itself, functions, variables, fields."""
    yield Path(path).stem
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def test_retired_names_stay_retired() -> None:
    """No package defines one of its former names again."""
    found = set()
    for path, tree in trees().items():
        package, _, rest = path.partition("/")
        words = RETIRED.get(package if rest else "(top level)", "").split()
        names = {name.lstrip("_").lower() for name in identifiers(path, tree)}
        found |= {(path, name) for name in names.intersection(words)}
    assert sorted(found) == []


def test_a_class_name_is_defined_once() -> None:
    places = defaultdict(list)
    for path, tree in trees().items():
        for name, node in definitions(tree):
            if isinstance(node, ast.ClassDef):
                places[name.rpartition(".")[2]].append(path)
    repeated = {name: where for name, where in places.items() if len(where) > 1}
    assert {n: w for n, w in repeated.items() if n not in SHARED_CLASS_NAMES} == {}


def test_functions_are_named_by_verbs_or_nouns() -> None:
    """No function is named by a participle, a preposition or a pronoun alone."""
    found = [
        f"{path}: {name}"
        for path, tree in trees().items()
        for name, node in definitions(tree)
        if isinstance(node, Function)
        and name.rpartition(".")[2].strip("_") in BARE_WORDS
        and name not in PUBLIC_BARE_NAMES
    ]
    assert found == []


@pytest.mark.parametrize("folder", ["rlxweb", "tests", "site"])
def test_docstrings_stand_alone(folder: str) -> None:
    """No docstring begins as the second half of a sentence."""
    found = []
    for path, tree in trees(ROOT / folder).items():
        for name, node in [("", tree), *definitions(tree)]:
            docstring = ast.get_docstring(node) or ""  # type: ignore[arg-type]
            if FRAGMENT.match(docstring):
                found.append(f"{folder}/{path}: {name}: {docstring.splitlines()[0]}")
    assert found == []


def present_names() -> Iterator[str]:
    """Yield the qualified name of every module, function, class, variable of a module
    or class, and attribute of `self`.
    """

    def within(
        node: ast.AST, prefix: str, class_name: str, in_function: bool
    ) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function | ast.ClassDef):
                name = f"{prefix}.{child.name}"
                yield name
                if isinstance(child, ast.ClassDef):
                    yield from within(child, name, name, False)
                else:
                    yield from within(child, name, class_name, True)
                continue
            match child:
                case ast.Name(id=variable, ctx=ast.Store()) if not in_function:
                    yield f"{prefix}.{variable}"
                case ast.Attribute(ast.Name("self"), attribute, ast.Store()):
                    yield f"{class_name}.{attribute}"
            yield from within(child, prefix, class_name, in_function)

    for path, tree in trees().items():
        module = ".".join(("rlxweb", *Path(path).with_suffix("").parts))
        module = module.removesuffix(".__init__")
        yield module
        yield from within(tree, module, "", False)


def test_the_map_of_renames_leads_to_what_exists() -> None:
    """Every file and name that the map of renames names as the present one exists."""
    lines = (ROOT / "site/pages/contributing/renames.csv").read_text("utf-8").split()
    assert lines[0] == "old,new"
    rows = [line.split(",") for line in lines[1:]]
    assert len(rows) > 1000
    assert len({old for old, _ in rows}) == len(rows)
    files = {new for _, new in rows if "/" in new}
    assert {name for name in files if not (ROOT / name).is_file()} == set()
    assert sorted({new for _, new in rows} - files - set(present_names())) == []
