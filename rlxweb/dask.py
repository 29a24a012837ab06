"""Public functions over Dask's arrays and clusters: `rlxweb.dask.welch_peaks` and
others.

Dask is an extra, `pip install "rlxweb[dask]"`. A name is loaded when it is first used.
"""

from __future__ import annotations

from typing import Any

from rlxweb.core.errors import Unsupported
from rlxweb.core.lazy_names import load_published, publish_names, published_names

publish_names(
    __name__,
    {
        "rlxweb.batch.cluster.cluster_clients": "local",
        "rlxweb.batch.cluster.device_shares": "Decisions LazyDecisions Share decisions",
        "rlxweb.batch.cluster.graphs": "run",
        "rlxweb.batch.cluster.peaks": "GatheredPeaks LazyPeaks welch_peaks",
        "rlxweb.batch.cluster.recordings": "spread",
        "rlxweb.batch.cluster.spectra": "welch",
        "rlxweb.batch.settings": "Settings",
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
