"""What makes a folder a package of npm: its manifest, a page for readers, a licence."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from typing import Any

from rlxweb.errors import UsageError, shown
from rlxweb.export.folder import Content
from rlxweb.export.signature import inputs_of, is_identifier, outputs_of

LICENSE = "Apache-2.0"
_PACKAGE = re.compile(r"(@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*")
_VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
_LONGEST = 214


@dataclass(frozen=True, slots=True)
class Package:
    """How a package is called; an empty name is the module's."""

    name: str = ""
    version: str = "1.0.0"

    def check(self, doing: str) -> None:
        """Errors  UsageError for what npm would refuse."""
        if self.name and not (
            _PACKAGE.fullmatch(self.name) and len(self.name) <= _LONGEST
        ):
            rule = (
                f"small letters, digits, '-', '.', '_', up to {_LONGEST}; @scope/name"
            )
            raise UsageError(doing, f"{self.name!r} is no name of a package", rule)
        if not _VERSION.fullmatch(self.version):
            rule = "three numbers, as 1.0.0, or 1.0.0-beta.1"
            raise UsageError(doing, f"{self.version!r} is no version", rule)


def as_package(given: object, doing: str) -> Package:
    """The package of a name, or of none. Errors  UsageError."""
    if given is None or isinstance(given, str):
        return Package(given or "")
    if not isinstance(given, Package):
        rule = "a name is wanted, or a rlxweb.export.package.Package"
        raise UsageError(doing, f"package is {shown(given)}", rule)
    return given


def package_files(plan: Mapping[str, Any], package: Package) -> dict[str, Content]:
    """package.json, README.md and the licence of runtime and shaders."""
    name = plan["name"]
    named = package.name or name.lower().lstrip("._")
    manifest = {
        "name": named,
        "version": package.version,
        "description": f"{name} on WebGPU: no Python, no dependency",
        "type": "module",
        "exports": {
            ".": {"types": f"./{name}.d.ts", "default": f"./{name}.js"},
            "./*": "./*",
        },
        "types": f"./{name}.d.ts",
        "files": _shipped(plan),
        "sideEffects": False,
        "engines": {"node": ">=18"},
        "license": LICENSE,
    }
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    files: dict[str, Content] = {
        "package.json": text.encode(),
        "README.md": _readme(plan, named).encode(),
    }
    licence = distribution("rlxweb").read_text("licenses/LICENSE")
    return files if licence is None else files | {"LICENSE": licence.encode()}


def _shipped(plan: Mapping[str, Any]) -> list[str]:
    name, vectors = plan["name"], plan["vectors"]
    files = [f"{name}.js", f"{name}.d.ts", "plan.json", "shaders", "weights.bin"]
    files += ["software.json"] if plan["software"] else []
    return files + (["vectors.bin"] if vectors else [])


def _readme(plan: Mapping[str, Any], named: str) -> str:
    name = plan["name"]
    taken, given = inputs_of(plan), outputs_of(plan)
    inputs, results = ", ".join(map(_property, taken)), ", ".join(map(_property, given))
    takes = [f"- `{key}`: {kind} {shape}" for key, (kind, shape) in taken.items()]
    gives = [f"- `{key}`: {kind} {shape}" for key, (kind, shape) in given.items()]
    return "\n".join(
        [
            f"# {named}",
            "",
            f"`{name}` computed by WebGPU in a page or a Worker: shaders and plan as "
            f"rlxweb {plan['rlxweb']} exported them.",
            "",
            "```js",
            f'import {{ load }} from "{named}";',
            "",
            f'const run = await load("/{name}/plan.json");',
            f"const {{ {results} }} = await run({{ {inputs} }});",
            "await run.check();   // against the test vectors of the package",
            "```",
            "",
            f"`load` fetches the files of this package: serve the folder "
            f"`node_modules/{named}` as it is, here under `/{name}/`, or copy it there "
            "when you build.",
            "",
            "It takes",
            "",
            *takes,
            "",
            "and gives",
            "",
            *gives,
            "",
            "in flat arrays, last axis fastest; errors are `RlxError`s with a code",
            "",
            f"Runtime and shaders: {LICENSE}, see LICENSE. The weights are their "
            "owner's: say in `package.json` what may be done with them.",
            "",
        ]
    )


def _property(key: str) -> str:
    """As it stands in an object's braces: `x`, or `"odd name": odd_name`."""
    if is_identifier(key):
        return key
    return f"{json.dumps(key)}: {re.sub(r'[^A-Za-z0-9_]', '_', key)}"
