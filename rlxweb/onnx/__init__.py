"""Load, run, inspect and save ONNX models.

`load` reads a model from a file or from bytes; what it gives runs like any graph. The
`onnx` package does what is its own to do (the format, its checker, its shape inference)
and is imported in `onnx_library_access.py` alone, when a model is read or written.

How an op of ONNX becomes ours is said once: on the op's own record where the two are
the same (`Op.onnx`), else by a converter (`converter_registry.py` tells how one is
written) in the file of its family. A model is walked node by node
(`model_conversion.py`) into a draft of a graph in which whatever is known is computed
at once (`constant_folding_graph.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlxweb.core.lazy_names import load_published, publish_names, published_names

if TYPE_CHECKING:
    from rlxweb.onnx.export import save as save
    from rlxweb.onnx.loading import load as load
    from rlxweb.onnx.model import Model as Model

publish_names(
    __name__,
    {
        "rlxweb.onnx.loading": "load",
        "rlxweb.onnx.model": "Model",
        "rlxweb.onnx.export": "save",
    },
)

__all__ = published_names(__name__)


def __getattr__(name: str) -> Any:
    return load_published(__name__, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
