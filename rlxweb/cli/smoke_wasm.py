"""`rlxweb smoke --wasm`: NumPy in WebAssembly as one more engine."""

from __future__ import annotations

from rlxweb.errors import UsageError
from rlxweb.smoke.engine import Engine
from rlxweb.smoke.tab.node import GET_NODE, WASM, node_path
from rlxweb.smoke.tab.runtime import runtime_folder


def wasm_engines(is_asked: bool, site: str | None) -> list[Engine]:
    """The engine, with the reason where it cannot be tried; none where nobody asks."""
    if not is_asked:
        return []
    node = node_path()
    if not node:
        return [_missing(f"node is not there; {GET_NODE}")]
    try:
        runtime = runtime_folder(site)
    except UsageError as error:
        return [_missing(str(error))]
    return [Engine(WASM, kind=WASM, launch={"node": node, "runtime": str(runtime)})]


def _missing(why: str) -> Engine:
    return Engine(WASM, kind=WASM, missing=why)
