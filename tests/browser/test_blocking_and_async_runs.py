"""Check blocking and asynchronous runs in a tab: stack switching (JSPI), and the errors
without it.
"""

from __future__ import annotations

import pytest

from tests.browser.conftest import Tab

pytestmark = pytest.mark.requires_browser


def test_run_blocks_by_switching_stacks(tab: Tab) -> None:
    """The calls are those of the desktop: compile, set_param, run."""
    error = tab.run(
        """
feeds, w = tab_functions.layer_feeds()
compiled = rlx.Session("webgpu").compile(tab_functions.layer())
compiled.set_param("w", w)
(y,) = compiled.run(feeds)
json.dumps(tab_functions.off(y))
"""
    )
    assert error < 1e-5


def test_run_says_to_await_where_it_cannot_block(tab: Tab) -> None:
    """A run that cannot block says to await, reads nothing and spoils no later run."""
    tab.run("await rlx.open_async('webgpu')\nNone")
    message = tab.blocking(
        """
json.dumps(caught(lambda: rlx.Session("webgpu").compile(tab_functions.unseen())))
"""
    )
    assert message.startswith("MustAwait: ")
    assert "await compile_async(…)" in message
    assert "JSPI" in message
    tab.run(
        """
compiled, feeds = await tab_functions.compiled_layer()
None
"""
    )
    message = tab.blocking("json.dumps(caught(lambda: compiled.run(feeds)))")
    assert message.startswith("MustAwait: ")
    assert "await run_async(…)" in message
    error = tab.run(
        """
(y,) = await compiled.run_async(feeds)
json.dumps(tab_functions.off(y))
"""
    )
    assert error < 1e-5


def test_automatic_choice_is_numpy_where_nothing_can_wait(tab: Tab) -> None:
    """NumPy computes where nothing can wait for the GPU; the decision says why."""
    tab.run("await rlx.open_async('webgpu')\nNone")
    result = tab.blocking(
        """
from rlxweb.select.calibration.profitability import profitability_policy
profitability_policy.spent_ns = 1e9
x = np.random.default_rng(0).standard_normal((64, 2048)).astype(np.float32)
p = rlx.welch_peaks(x, fs=256, k=3)
others = [c.blocker for c in p.decision.candidates if c.device.label != "cpu"]
json.dumps([p.device.label, others])
"""
    )
    assert result[0] == "cpu"
    assert result[1]
    assert any("JSPI" in blocker for blocker in result[1])


def test_welch_peaks_async_needs_no_stack_switching(tab: Tab) -> None:
    """The GPU finds peaks in a task of the page's own event loop."""
    result = tab.run(
        """
x = np.random.default_rng(0).standard_normal((8, 2048)).astype(np.float32)
p = await asyncio.ensure_future(rlx.welch_peaks_async(x, fs=256, k=3, device="webgpu"))
q = rlx.welch_peaks(x, fs=256, k=3, device="cpu")
json.dumps([p.device.label, bool((p.bins == q.bins).all())])
"""
    )
    assert result == ["webgpu", True]


def test_welch_async_gives_the_spectrum(tab: Tab) -> None:
    """A spectrum that the GPU computed is NumPy's."""
    result = tab.run(
        """
x = np.random.default_rng(0).standard_normal((8, 2048)).astype(np.float32)
f, p = await rlx.welch_async(x, 256, "hann", 256, device="webgpu")
g, q = rlx.welch(x, 256, "hann", 256, device="cpu")
json.dumps([bool((f == g).all()), float(abs(p / q - 1).max())])
"""
    )
    assert result[0]
    assert result[1] < 1e-3


def test_concurrent_runs_each_get_their_own_answer(tab: Tab) -> None:
    """Concurrent tasks each get their own answer, of a run or of peaks."""
    result = tab.run(
        """
compiled, feeds = await tab_functions.compiled_layer()
outs = await asyncio.gather(*(compiled.run_async(feeds) for _ in range(5)))
x = np.random.default_rng(0).standard_normal((3, 900)).astype("f4")
there = [rlx.welch_peaks_async(x[:, k:], device="webgpu", k=3) for k in range(5)]
here = [rlx.welch_peaks(x[:, k:], device="cpu", k=3) for k in range(5)]
there = await asyncio.gather(*there)
same = [(a.bins == b.bins).all() for a, b in zip(there, here)]
json.dumps([max(tab_functions.off(y) for (y,) in outs), bool(all(same))])
"""
    )
    assert result[0] < 1e-5
    assert result[1]


def test_a_cancelled_run_does_not_affect_the_next(tab: Tab) -> None:
    """A cancelled run frees its read-back buffer."""
    error = tab.run(
        """
compiled, feeds = await tab_functions.compiled_layer()
for _ in range(5):
    task = asyncio.ensure_future(compiled.run_async(feeds))
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
    (y,) = await compiled.run_async(feeds)
json.dumps(tab_functions.off(y))
"""
    )
    assert error < 1e-5
