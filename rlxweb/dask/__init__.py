"""Compute on many machines with Dask: recordings one by one, arrays chunk by chunk.

Dask is an extra, `pip install "rlxweb[dask]"`, and is loaded by nothing but this room.
`rlxweb.dask` is the public address of what works on Dask's arrays: each name is loaded
when it is first used.
"""

from __future__ import annotations

from typing import Any

from rlxweb.core.errors import Unsupported
from rlxweb.core.lazy_names import load_published, publish_names, published_names

publish_names(
    __name__,
    {
        "rlxweb.dask.device_shares": "Decisions LazyDecisions Share decisions",
        "rlxweb.dask.graphs": "run",
        "rlxweb.dask.peaks": "GatheredPeaks LazyPeaks welch_peaks",
        "rlxweb.dask.spectra": "welch",
    },
)

__all__ = published_names(__name__)


def __getattr__(name: str) -> Any:
    try:
        return load_published(__name__, name)
    except ModuleNotFoundError as error:
        library = str(error.name).partition(".")[0]
        if library not in ("dask", "distributed"):
            raise
        raise Unsupported(
            f"rlxweb.dask.{name}",
            f"{library} is not installed",
            hint='pip install "rlxweb[dask]"',
        ) from error
