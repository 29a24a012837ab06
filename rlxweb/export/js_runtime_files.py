"""JavaScript runtime, type declarations and HTML page that are written beside an
exported plan.

The runtime is one text for every plan; of its types, what the plan takes and gives is
written for the plan at hand. Its source is read in PARTS, one module:

runtime.js           the plan: loading, running, checking
runtime_browser.js   adapters and files
runtime_arrays.js    arrays, and Welch's method around a run

The page, which runs a plan and shows it, is page.html, early.js, page.js and page.css.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from rlxweb.core.errors import RlxError
from rlxweb.export.atomic_folder import FileContent
from rlxweb.export.plan_io_signature import (
    PlanSignature,
    input_signature,
    is_js_identifier,
    output_signature,
)

RUNTIME_PARTS = ("runtime.js", "runtime_browser.js", "runtime_arrays.js")
_TYPED_ARRAYS = {
    "f32": "Float32Array",
    "f64": "Float64Array",
    "i32": "Int32Array",
    "u32": "Uint32Array",
    "f16": "Uint16Array",
    "bool": "Uint8Array",
    "i64": "BigInt64Array",
    "u64": "BigUint64Array",
}
_INPUT_ARRAY_TYPES = {
    "i64": "BigInt64Array | Int32Array",
    "u64": "BigUint64Array | Uint32Array",
}
_INTERFACE_COMMENTS = {
    "Inputs": "Inputs of `run`: flat arrays with the last axis fastest.",
    "Outputs": "Outputs of `run`: new flat arrays with the last axis fastest.",
}
_PLAN_TYPES_SECTION = re.compile(
    r"(// --- what the plan takes and gives ---\n).*?(// --- end ---)", re.DOTALL
)


def runtime_source() -> str:
    """Return the source of the module that runs any plan: its parts in order."""
    return "".join(read_source(part) for part in RUNTIME_PARTS)


def read_source(file: str) -> str:
    """Read a text file that lies next to this Python module."""
    return (resources.files("rlxweb.export") / file).read_text(encoding="utf-8")


def runtime_files(plan: Mapping[str, Any]) -> dict[str, FileContent]:
    """Return the runtime module NAME.js and its type declarations NAME.d.ts."""
    name = plan["name"]
    return {
        f"{name}.js": runtime_source().encode(),
        f"{name}.d.ts": insert_plan_types(read_source("runtime.d.ts"), plan).encode(),
    }


def page_files(plan: Mapping[str, Any]) -> dict[str, FileContent]:
    """Return the files of a page that runs and checks the plan; its parts are
    preloaded.
    """
    name = plan["name"]
    # Which shaders are wanted is known once a browser has told its adapter, where there
    # are two plans; what is loaded and not used, it warns of.
    plan_files = [plan["software"]] if plan["software"] else plan["shaders"]
    paths = [*plan_files, plan["weights"]["file"]]
    preloads = [
        f'<link rel="preload" href="{path}" as="fetch" crossorigin>' for path in paths
    ]
    page = read_source("page.html").replace("{preloads}", "\n  ".join(preloads))
    return {
        "index.html": page.replace("{name}", name).encode(),
        "early.js": read_source("early.js").encode(),
        "page.js": read_source("page.js").replace("{name}", name).encode(),
        "page.css": read_source("page.css").encode(),
    }


def insert_plan_types(text: str, plan: Mapping[str, Any]) -> str:
    """Insert the types of this plan's inputs and outputs into the runtime's type
    declarations.
    """
    inputs, outputs = input_signature(plan), output_signature(plan)
    interfaces = _typescript_interface(
        "Inputs", inputs, _INPUT_ARRAY_TYPES
    ) + _typescript_interface("Outputs", outputs, {})
    declarations, count = _PLAN_TYPES_SECTION.subn(
        lambda m: m[1] + interfaces + m[2], text
    )
    if count != 1:
        raise RlxError("export", "runtime.d.ts has no section for the types of a plan")
    return declarations


def _typescript_interface(
    name: str, signature: PlanSignature, overrides: Mapping[str, str]
) -> str:
    """Return the TypeScript interface of inputs or outputs."""
    lines = [f"/** {_INTERFACE_COMMENTS[name]} */", f"export interface {name} {{"]
    for key, (kind, shape) in signature.items():
        property_name = key if is_js_identifier(key) else json.dumps(key)
        array = overrides.get(kind, _TYPED_ARRAYS[kind])
        lines += [f"  /** {kind} {shape} */", f"  {property_name}: {array};"]
    return "\n".join([*lines, "}", ""])
