"""Blocking calls where stacks can be switched, and what to do where they cannot."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Tab

pytestmark = pytest.mark.requires_browser


def test_run_blocks_by_switching_stacks(tab: Tab) -> None:
    """The very calls of the desktop: compile, set_param, run."""
    off = tab.run(
        """
feeds, w = suite.layer_feeds()
compiled = rlx.Session("webgpu").compile(suite.layer())
compiled.set_param("w", w)
(y,) = compiled.run(feeds)
json.dumps(suite.off(y))
"""
    )
    assert off < 1e-5


def test_run_says_to_await_where_it_cannot_block(tab: Tab) -> None:
    """A run that cannot block says to await, reads nothing and spoils no later run."""
    tab.run("await rlx.open_async('webgpu')\nNone")
    said = tab.blocking(
        """
json.dumps(caught(lambda: rlx.Session("webgpu").compile(suite.unseen())))
"""
    )
    assert said.startswith("MustAwait: ")
    assert "await compile_async(…)" in said
    assert "JSPI" in said
    tab.run(
        """
compiled, feeds = await suite.compiled_layer()
None
"""
    )
    said = tab.blocking("json.dumps(caught(lambda: compiled.run(feeds)))")
    assert said.startswith("MustAwait: ")
    assert "await run_async(…)" in said
    off = tab.run(
        """
(y,) = await compiled.run_async(feeds)
json.dumps(suite.off(y))
"""
    )
    assert off < 1e-5


def test_a_device_left_open_is_numpy_where_nothing_can_wait(tab: Tab) -> None:
    """NumPy computes where nothing can wait for the GPU; the decision says why."""
    tab.run("await rlx.open_async('webgpu')\nNone")
    found = tab.blocking(
        """
from rlxweb.calibration.worth import worth
worth.spent_ns = 1e9
x = np.random.default_rng(0).standard_normal((64, 2048)).astype(np.float32)
p = rlx.welch_peaks(x, fs=256, k=3)
others = [c.blocker for c in p.decision.candidates if c.device.label != "cpu"]
json.dumps([p.device.label, others])
"""
    )
    assert found[0] == "cpu"
    assert found[1]
    assert any("JSPI" in blocker for blocker in found[1])


def test_welch_peaks_async_needs_no_switching(tab: Tab) -> None:
    """The GPU finds peaks in a task of the page's own event loop."""
    found = tab.run(
        """
x = np.random.default_rng(0).standard_normal((8, 2048)).astype(np.float32)
p = await asyncio.ensure_future(rlx.welch_peaks_async(x, fs=256, k=3, device="webgpu"))
q = rlx.welch_peaks(x, fs=256, k=3, device="cpu")
json.dumps([p.device.label, bool((p.bins == q.bins).all())])
"""
    )
    assert found == ["webgpu", True]


def test_welch_async_gives_the_spectrum(tab: Tab) -> None:
    """A spectrum that the GPU computed is NumPy's."""
    off = tab.run(
        """
x = np.random.default_rng(0).standard_normal((8, 2048)).astype(np.float32)
f, p = await rlx.welch_async(x, 256, "hann", 256, device="webgpu")
g, q = rlx.welch(x, 256, "hann", 256, device="cpu")
json.dumps([bool((f == g).all()), float(abs(p / q - 1).max())])
"""
    )
    assert off[0]
    assert off[1] < 1e-3


def test_runs_at_once_take_turns(tab: Tab) -> None:
    """Tasks at once each get their own answer, be it of a run or of peaks."""
    found = tab.run(
        """
compiled, feeds = await suite.compiled_layer()
outs = await asyncio.gather(*(compiled.run_async(feeds) for _ in range(5)))
x = np.random.default_rng(0).standard_normal((3, 900)).astype("f4")
there = [rlx.welch_peaks_async(x[:, k:], device="webgpu", k=3) for k in range(5)]
here = [rlx.welch_peaks(x[:, k:], device="cpu", k=3) for k in range(5)]
there = await asyncio.gather(*there)
same = [(a.bins == b.bins).all() for a, b in zip(there, here)]
json.dumps([max(suite.off(y) for (y,) in outs), bool(all(same))])
"""
    )
    assert found[0] < 1e-5
    assert found[1]


def test_a_run_that_was_cancelled_leaves_the_next_one_whole(tab: Tab) -> None:
    """A cancelled run frees the buffer that it was reading into."""
    off = tab.run(
        """
compiled, feeds = await suite.compiled_layer()
for _ in range(5):
    task = asyncio.ensure_future(compiled.run_async(feeds))
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
    (y,) = await compiled.run_async(feeds)
json.dumps(suite.off(y))
"""
    )
    assert off < 1e-5
