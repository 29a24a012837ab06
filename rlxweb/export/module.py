"""What lies beside a plan: the runtime with the plan's types, and a page.

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

from rlxweb.errors import RlxError
from rlxweb.export.folder import Content
from rlxweb.export.signature import Signature, inputs_of, is_identifier, outputs_of

PARTS = ("runtime.js", "runtime_browser.js", "runtime_arrays.js")
_ARRAYS = {
    "f32": "Float32Array",
    "f64": "Float64Array",
    "i32": "Int32Array",
    "u32": "Uint32Array",
    "f16": "Uint16Array",
    "bool": "Uint8Array",
    "i64": "BigInt64Array",
    "u64": "BigUint64Array",
}
_TAKEN = {"i64": "BigInt64Array | Int32Array", "u64": "BigUint64Array | Uint32Array"}
_SAID = {
    "Inputs": "What `run` takes: flat arrays, the last axis fastest.",
    "Outputs": "What comes back, flat likewise, in arrays that belong to the caller.",
}
_TYPES = re.compile(
    r"(// --- what the plan takes and gives ---\n).*?(// --- end ---)", re.DOTALL
)


def module_text() -> str:
    """The module that runs any plan: its parts, one after the other."""
    return "".join(source(part) for part in PARTS)


def source(file: str) -> str:
    """Read a text file that lies beside this module."""
    return (resources.files("rlxweb.export") / file).read_text(encoding="utf-8")


def runtime_files(plan: Mapping[str, Any]) -> dict[str, Content]:
    """NAME.js and NAME.d.ts."""
    name = plan["name"]
    return {
        f"{name}.js": module_text().encode(),
        f"{name}.d.ts": typed(source("runtime.d.ts"), plan).encode(),
    }


def page_files(plan: Mapping[str, Any]) -> dict[str, Content]:
    """A page that runs the plan and checks it; it begins to load all at once."""
    name = plan["name"]
    # Which shaders are wanted is known once a browser has told its adapter, where there
    # are two plans; what is loaded and not used, it warns of.
    more = [plan["software"]] if plan["software"] else plan["shaders"]
    paths = [*more, plan["weights"]["file"]]
    loads = [f'<link rel="preload" href="{p}" as="fetch" crossorigin>' for p in paths]
    page = source("page.html").replace("{preloads}", "\n  ".join(loads))
    return {
        "index.html": page.replace("{name}", name).encode(),
        "early.js": source("early.js").encode(),
        "page.js": source("page.js").replace("{name}", name).encode(),
        "page.css": source("page.css").encode(),
    }


def typed(text: str, plan: Mapping[str, Any]) -> str:
    """The runtime's types with what this plan takes and gives."""
    inputs, outputs = inputs_of(plan), outputs_of(plan)
    both = _interface("Inputs", inputs, _TAKEN) + _interface("Outputs", outputs, {})
    found, count = _TYPES.subn(lambda m: m[1] + both + m[2], text)
    if count != 1:
        raise RlxError("export", "the runtime's types have no place for a plan's own")
    return found


def _interface(name: str, of: Signature, instead: Mapping[str, str]) -> str:
    lines = [f"/** {_SAID[name]} */", f"export interface {name} {{"]
    for key, (kind, shape) in of.items():
        shown = key if is_identifier(key) else json.dumps(key)
        array = instead.get(kind, _ARRAYS[kind])
        lines += [f"  /** {kind} {shape} */", f"  {shown}: {array};"]
    return "\n".join([*lines, "}", ""])
