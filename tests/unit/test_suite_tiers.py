"""The lists of the test tiers name existing paths, and a mark that matches no test is
reported.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import suite_tiers

TESTS = Path(suite_tiers.__file__).parent


def test_listed_paths_exist() -> None:
    starts = (*suite_tiers.QUICK, *suite_tiers.NOT_QUICK)
    assert [start for start in starts if not any(TESTS.glob(f"{start}*"))] == []


def full_test_item(**params: Any) -> Any:
    """Return a stand-in for a collected test that is `full` on OpenGL."""
    mark = pytest.mark.full("opengl").mark
    return SimpleNamespace(
        nodeid=f"test_a.py::test_x[{'-'.join(params.values())}]",
        callspec=SimpleNamespace(params=params, id="-".join(params.values())),
        iter_markers=lambda name: [mark],
    )


def test_an_unmatched_parameter_of_full_is_reported() -> None:
    """A misspelled parameter would otherwise leave its test in the default tier
    unnoticed.
    """
    suite_tiers.check_marks(
        [full_test_item(adapter="lavapipe"), full_test_item(adapter="opengl")]
    )
    with pytest.raises(pytest.UsageError, match=r"test_x.*no case.*'opengl'"):
        suite_tiers.check_marks(
            [full_test_item(adapter="lavapipe"), full_test_item(adapter="gl")]
        )


def test_a_test_is_selected_by_any_form_of_its_path(tmp_path: Path) -> None:
    """A relative path, from any folder, and an absolute one name the same test."""
    path = tmp_path / "tests" / "test_a.py"
    for folder, words in (
        (tmp_path, ["tests/test_a.py::test_x", "./tests/test_a.py::test_x"]),
        (path.parent, ["test_a.py::test_x", f"{path}::test_x"]),
    ):
        for word in words:
            config: Any = SimpleNamespace(
                args=[word], invocation_params=SimpleNamespace(dir=folder)
            )
            named = suite_tiers.tests_named_by_id(config)
            for name, is_named in (
                ("test_x", True),
                ("test_x[1]", True),
                ("test_x::test_in_a_class", True),
                ("test_xy", False),
            ):
                item: Any = SimpleNamespace(
                    path=path, nodeid=f"tests/test_a.py::{name}"
                )
                assert suite_tiers.is_named(item, named) is is_named, (word, name)
