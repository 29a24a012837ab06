"""Files that make an export an npm package: manifest, README and licence."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from typing import Any

from rlxweb.core.errors import UsageError, shown
from rlxweb.export.atomic_folder import FileContent
from rlxweb.export.plan_io_signature import (
    input_signature,
    is_js_identifier,
    output_signature,
)

LICENSE = "Apache-2.0"
_PACKAGE_NAME = re.compile(r"(@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*")
_VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
_MAX_NAME_LENGTH = 214


@dataclass(frozen=True, slots=True)
class NpmPackage:
    """Name and version of an npm package; an empty name stands for the module's."""

    name: str = ""
    version: str = "1.0.0"

    def check(self, context: str) -> None:
        """Raise UsageError for a name or version that npm would refuse."""
        if self.name and not (
            _PACKAGE_NAME.fullmatch(self.name) and len(self.name) <= _MAX_NAME_LENGTH
        ):
            rule = (
                f"expected NAME or @SCOPE/NAME of at most {_MAX_NAME_LENGTH} "
                "characters: lowercase letters, digits, '-', '~', '.' and '_', not "
                "beginning with '.' or '_'"
            )
            raise UsageError(
                context, f"{self.name!r} is not a valid package name", rule
            )
        if not _VERSION.fullmatch(self.version):
            rule = "expected MAJOR.MINOR.PATCH, such as 1.0.0 or 1.0.0-beta.1"
            raise UsageError(context, f"{self.version!r} is not a valid version", rule)


def coerce_package(package: object, context: str) -> NpmPackage:
    """Return the package with this name, or an unnamed one for None; raise UsageError
    for other types.
    """
    if package is None or isinstance(package, str):
        return NpmPackage(package or "")
    if not isinstance(package, NpmPackage):
        rule = "expected a package name or an rlxweb.export.npm_package.NpmPackage"
        raise UsageError(context, f"package is {shown(package)}", rule)
    return package


def package_files(
    plan: Mapping[str, Any], package: NpmPackage
) -> dict[str, FileContent]:
    """Return package.json, README.md and the licence of runtime and shaders."""
    name = plan["name"]
    package_name = package.name or name.lower().lstrip("._")
    manifest = {
        "name": package_name,
        "version": package.version,
        "description": f"{name} on WebGPU, without Python or dependencies",
        "type": "module",
        "exports": {
            ".": {"types": f"./{name}.d.ts", "default": f"./{name}.js"},
            "./*": "./*",
        },
        "types": f"./{name}.d.ts",
        "files": _published_files(plan),
        "sideEffects": False,
        "engines": {"node": ">=18"},
        "license": LICENSE,
    }
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    files: dict[str, FileContent] = {
        "package.json": text.encode(),
        "README.md": _readme_text(plan, package_name).encode(),
    }
    licence = distribution("rlxweb").read_text("licenses/LICENSE")
    return files if licence is None else files | {"LICENSE": licence.encode()}


def _published_files(plan: Mapping[str, Any]) -> list[str]:
    """Return the files that the package publishes."""
    name, vectors = plan["name"], plan["vectors"]
    files = [f"{name}.js", f"{name}.d.ts", "plan.json", "shaders", "weights.bin"]
    files += ["software.json"] if plan["software"] else []
    return files + (["vectors.bin"] if vectors else [])


def _readme_text(plan: Mapping[str, Any], package_name: str) -> str:
    """Return the text of README.md."""
    name = plan["name"]
    input_types, output_types = input_signature(plan), output_signature(plan)
    inputs = ", ".join(map(_destructured_property, input_types))
    results = ", ".join(map(_destructured_property, output_types))
    input_lines = [
        f"- `{key}`: {kind} {shape}" for key, (kind, shape) in input_types.items()
    ]
    output_lines = [
        f"- `{key}`: {kind} {shape}" for key, (kind, shape) in output_types.items()
    ]
    return "\n".join(
        [
            f"# {package_name}",
            "",
            f"Runs `{name}` on WebGPU in a page or a Worker, with the shaders and plan "
            f"exported by rlxweb {plan['rlxweb']}.",
            "",
            "```js",
            f'import {{ load }} from "{package_name}";',
            "",
            f'const run = await load("/{name}/plan.json");',
            f"const {{ {results} }} = await run({{ {inputs} }});",
            "await run.check();   // against the test vectors of the package",
            "```",
            "",
            f"`load` fetches the files of this package: serve the folder "
            f"`node_modules/{package_name}` unchanged (in this example under "
            f"`/{name}/`), or copy it to that path in your build.",
            "",
            "Inputs:",
            "",
            *input_lines,
            "",
            "Outputs:",
            "",
            *output_lines,
            "",
            "All arrays are flat, with the last axis fastest. Errors are `RlxError`s "
            "with a code.",
            "",
            f"Runtime and shaders: {LICENSE}, see LICENSE. The weights belong to "
            "their owner: state their license in `package.json`.",
            "",
        ]
    )


def _destructured_property(key: str) -> str:
    """Return a property in the form used inside an object's braces: `x`, or `"odd
    name": odd_name`.
    """
    if is_js_identifier(key):
        return key
    return f"{json.dumps(key)}: {re.sub(r'[^A-Za-z0-9_]', '_', key)}"
