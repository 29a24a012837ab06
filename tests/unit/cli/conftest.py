"""Fixtures of tables of command lines: a folder with the files that a line names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.shared_files import FileStore


@pytest.fixture(scope="session")
def file_store(tmp_path_factory: pytest.TempPathFactory) -> FileStore:
    """The shared files, each written when the first test names it."""
    from tests.unit.cli.shared_files import FileStore

    return FileStore(tmp_path_factory.mktemp("cli_files"))


@pytest.fixture
def place_files(
    file_store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Function that puts the files that a command line names into the working folder,
    which is empty.
    """
    from tests.unit.cli.shared_files import USER_MODULES

    monkeypatch.chdir(tmp_path)
    for name in USER_MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return lambda line: file_store.copy_named(line, tmp_path)
