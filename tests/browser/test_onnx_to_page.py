"""Bring an .onnx file onto a page that runs it, following the manual's steps."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import START_MS
from tests.browser.foreign_web_servers import host_without_headers
from tests.built_site_fixture import BuiltSite
from tests.cli_runners import run_python
from tests.edf_bdf_recordings import save_recording
from tests.howto_pages import code_blocks

pytestmark = pytest.mark.requires_browser
PAGE = "onnx-to-page"
FS = 22050


def write_chord(path: Path) -> Path:
    """Write one and a half seconds of C, E and G, each with a few overtones."""
    t = np.arange(int(1.5 * FS)) / FS
    tones = [
        np.sin(2 * np.pi * f * k * t) / k**2
        for f in (261.63, 329.63, 392.0)
        for k in (1, 2, 3)
    ]
    sound = (0.2 * np.sum(tones, axis=0) * np.minimum(t / 0.01, 1)).astype(np.float32)
    save_recording(path, sound[None], fs=FS, channels=["sound"])
    return path


def test_onnx_model_runs_in_a_page_of_thirty_lines(
    browser: Browser, built_site: BuiltSite, tmp_path: Path
) -> None:
    """The manual's program and page find the notes of a chord by a model of ONNX."""
    (html,) = code_blocks(PAGE, "html")
    program = code_blocks(PAGE, "python")[0]
    assert len(html.splitlines()) <= 30
    output = run_python("-c", program, cwd=tmp_path)
    assert output.code == 0, output
    (tmp_path / "index.html").write_text(html, "utf-8")
    os.symlink(built_site.folder / "runtime", tmp_path / "runtime")
    with host_without_headers(replace(built_site, folder=tmp_path)) as url:
        page = browser.new_page()
        page.goto(url)
        expect(page.locator("#out")).to_have_text("Choose a sound.", timeout=START_MS)
        page.set_input_files("input", write_chord(tmp_path / "chord.wav"))
        expect(page.locator("#out")).to_contain_text("C4 E4 G4", timeout=START_MS)
        page.context.close()
