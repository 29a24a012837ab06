"""Tests whose library or adapter is missing are skipped; any other error is a
failure.
"""

from __future__ import annotations

import pytest

from rlxweb.core.errors import AdapterMissing, RlxError
from tests import conftest, skip_missing_libraries

NO_ADAPTER = AdapterMissing("open device 'vulkan'", "no adapter was found")


def caused_by(cause: Exception) -> Exception:
    """Return an error that was raised from another one."""
    error = RlxError("run a graph", "it cannot be done")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("error", [NO_ADAPTER, caused_by(NO_ADAPTER)])
@pytest.mark.parametrize("engine", ["wgpu", "fast"])
def test_a_missing_adapter_skips_where_an_engine_is_missing(
    error: Exception, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`AdapterMissing` is a fault where every engine works."""
    monkeypatch.setattr(conftest, "missing_reason", lambda name: name == engine)
    assert skip_missing_libraries.missing_requirement(error) == str(NO_ADAPTER)
    monkeypatch.setattr(conftest, "missing_reason", lambda name: "")
    assert skip_missing_libraries.missing_requirement(error) == ""


@pytest.mark.parametrize(
    ("error", "library"),
    [
        (ModuleNotFoundError("no", name="no_such_library.part"), "no_such_library"),
        (
            caused_by(ModuleNotFoundError("no", name="no_such_library")),
            "no_such_library",
        ),
        (ModuleNotFoundError("no", name="numpy.no_such_part"), ""),
        (ModuleNotFoundError("no", name="rlxweb.no_such_part"), ""),
        (ModuleNotFoundError("no", name="tests.no_such_part"), ""),
        (ImportError("no", name="no_such_library"), ""),
        (ValueError("no"), ""),
    ],
)
def test_only_a_library_that_is_not_installed_is_missing(
    error: Exception, library: str
) -> None:
    """A part that an installed library or this project lacks is a fault."""
    assert skip_missing_libraries.missing_library(error) == library
