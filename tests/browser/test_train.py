"""The page that trains a network, driven as a visitor would.

Most of it on one page, whose networks are reset between the tests. What the page
learned is held to the same steps made on this machine.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from playwright.sync_api import Browser, Page, expect

import rlxweb as rlx
from tests.browser.demo_page import NO_GPU, OpenPage, changed
from tests.browser.watch import START_MS, Watch
from tests.training_demo import training_demo

pytestmark = pytest.mark.requires_browser

STEPS = 100
RATE, BATCH, FILTERS = 0.003, 32, 16
# Keeps the Worker, to lose the GPU behind the page's back, and makes the microphone
# hear what a test left in `voice`.
SPY = """
const send = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (...given) {
  globalThis.worker = this;
  return send.apply(this, given);
};
globalThis.lose = () => send.call(worker, { id: -1, call: "lose", args: {} });
if (navigator.mediaDevices) navigator.mediaDevices.getUserMedia = async () => {
  const raw = Uint8Array.from(atob(globalThis.voice), (one) => one.charCodeAt(0));
  const samples = new Float32Array(raw.buffer);
  const context = new AudioContext();
  const buffer = context.createBuffer(1, samples.length, 8000);
  buffer.copyToChannel(samples, 0);
  const source = new AudioBufferSourceNode(context, { buffer, loop: true });
  const out = context.createMediaStreamDestination();
  source.connect(out);
  source.start();
  return out.stream;
};
"""


@pytest.fixture(scope="module")
def opened_train(browser: Browser, site_url: str) -> Iterator[tuple[Page, Watch]]:
    """One page for the tests of this file."""
    watch = Watch(site_url)
    page = watch.page(browser, "demo/train/", SPY)
    yield state(page, "ready", START_MS), watch
    page.context.close()


@pytest.fixture
def train(opened_train: tuple[Page, Watch]) -> Iterator[Page]:
    """The page with no network and its settings as it begins."""
    page, watch = opened_train
    page.select_option("#kind", "adam")
    page.fill("#rate", str(RATE))
    page.fill("#steps", str(STEPS))
    yield page
    if page.locator("#training").get_attribute("data-state") != "ready":
        page.click("#reset")
        state(page, "ready")
    watch.check()


@pytest.fixture(scope="module")
def here() -> tuple[npt.NDArray[np.float64], dict[str, Any]]:
    """The same training by `rlx.train` on this machine: its losses, its parameters."""
    with training_demo() as demo:
        x, y = demo.data.Data().part("train", "made")

        def batch(n: int) -> Any:
            some = np.random.default_rng([0, n]).integers(0, len(x), BATCH)
            return x[some], y[some], np.float32(RATE)

        begin = demo.network.first_state("adam", FILTERS, 0)
        step = demo.network.step_by("adam")
        done = rlx.train(step, batch, begin, steps=STEPS, device="cpu")
    return done.losses, done.state[0]


def state(page: Page, name: str, timeout: float = 60_000) -> Page:
    """The page, once its training is ready, running, paused, done, stopped, lost."""
    page.wait_for_selector(f'#training[data-state="{name}"]', timeout=timeout)
    return page


def device(page: Page, name: str) -> None:
    page.check(f'input[name="device"][value="{name}"]', force=True)


def made(page: Page, steps: int) -> None:
    """Waits until so many steps are made."""
    done = "Number(document.querySelector('#figure-steps').textContent)"
    page.wait_for_function(f"{done} >= {steps}", timeout=60_000)


def paused(page: Page) -> int:
    """Pause the training before its end and return how many steps it has made."""
    page.click("#start")
    state(page, "paused")
    return int(page.inner_text("#figure-steps"))


def pause_after_a_step(page: Page) -> None:
    """Have the page itself press Pause as soon as a step is made."""
    page.evaluate(
        """() => {
        const steps = document.querySelector("#figure-steps");
        new MutationObserver((_, watch) => {
            if (Number(steps.textContent) < 1) return;
            watch.disconnect();
            document.querySelector("#start").click();
        }).observe(steps, { childList: true, characterData: true, subtree: true }); }"""
    )


def saved(page: Page, button: str) -> tuple[str, bytes]:
    """What a button saves: the file's name and bytes."""
    with page.expect_download() as waiting:
        page.click(button)
    file = waiting.value
    return file.suggested_filename, Path(file.path()).read_bytes()


def losses(page: Page) -> npt.NDArray[np.float64]:
    """The losses of all steps, as the saved state has them."""
    name, raw = saved(page, "#save-state")
    assert name == "vowels-state.npz"
    with np.load(io.BytesIO(raw)) as found:
        return np.array(found["losses"])


def right(page: Page) -> float:
    """The share of the held-out examples that is right, as shown."""
    return float(page.inner_text("#figure-right").removesuffix(" %")) / 100


def as_chosen(name: str, raw: bytes) -> list[dict[str, Any]]:
    """A file as Playwright gives it to an input."""
    return [{"name": name, "mimeType": "", "buffer": raw}]


@pytest.mark.full("cpu")
@pytest.mark.parametrize("where", ["webgpu", "cpu"])
def test_it_learns_to_tell_vowels(train: Page, here: Any, where: str) -> None:
    """The page learns to tell vowels by a desktop's curve, paused or not.

    The saved network judges there as here.
    """
    device(train, where)
    if where == "cpu":
        pause_after_a_step(train)
    train.click("#start")
    if where == "cpu":
        state(train, "paused")
        assert 0 < int(train.inner_text("#figure-steps")) < STEPS
        expect(train.locator("#start")).to_have_text("Go on")
        expect(train.locator("#kind")).to_be_disabled()
        train.click("#start")
    state(train, "done")
    assert ("swiftshader" if where == "webgpu" else "NumPy") in train.inner_text(
        "#said"
    )
    assert "you chose it" in train.inner_text("#why")
    assert right(train) > 0.9
    wanted, _ = here
    np.testing.assert_allclose(losses(train), wanted, rtol=2e-3, atol=2e-4)
    name, raw = saved(train, "#save")
    assert name == "vowels.rlxg"
    check_file(train, raw)
    assert float(train.inner_text("#figure-ms").removesuffix(" ms")) > 0
    assert int(train.inner_text("#figure-rate").replace(",", "")) > 0


def check_file(page: Page, raw: bytes) -> None:
    """The network of a page on this machine: the same share right, the same numbers."""
    model = rlx.load(raw)
    page.click("#example")
    expect(page.locator("#hear-said")).to_contain_text("says “")
    told = page.inner_text("#hear-said")
    values = page.locator("#bars .value")
    shown = [float(one.get_attribute("title") or "nan") for one in values.all()]
    seed = int(page.get_attribute("#bars", "data-seed") or 0)
    with training_demo() as demo:
        data, vowels = demo.data.Data(), demo.vowels
        about, _, frame = data.example(seed, 0.6)
        assert f"says “{about['vowel']}”" in told
        x = frame[None] / vowels.rms(frame)
        found = model.run({"sound": x.astype(np.float32)})["probabilities"]
        np.testing.assert_allclose(found[0], shown, rtol=1e-3, atol=1e-5)
        rng = np.random.default_rng(demo.data.SEED)
        said = [vowels.utterances(rng, n, demo.data.EACH) for n in (48, 12)]
        sounds = [vowels.sounds(rng, one) for one in said][1]
    guessed = model.run({"sound": sounds})["probabilities"].argmax(1)
    share = (guessed == said[1].vowel).mean()
    assert share == pytest.approx(right(page), abs=0.0051)


def test_what_is_shown_is_told_too(train: Page) -> None:
    """The curve in words and as a table, the confusions, a line to be spoken."""
    device(train, "cpu")
    train.locator("#start").focus()
    train.keyboard.press("Enter")
    state(train, "done")
    label = train.get_attribute("#curve", "aria-label") or ""
    assert re.match(
        r"Loss from \d\.\d+ at step 1 to 0\.\d+ at step 100\. Of held", label
    )
    train.click("#numbers summary")
    rows = train.locator("#rows tr")
    expect(rows).to_have_count(STEPS // 25)
    assert rows.last.locator("td").first.inner_text() == str(STEPS)
    cells = [int(one) for one in train.locator("#confusion td").all_inner_texts()]
    assert sum(cells) == 300
    assert sum(cells[::6]) / 300 == pytest.approx(right(train), abs=0.0006)
    assert "% of the held-out examples right" in train.inner_text(".said[role=status]")
    colour = (
        "curve => [...curve.getContext('2d').getImageData(0, 0, curve.width, 20).data]"
    )
    painted = f"Math.max(...({colour})(document.querySelector('#curve'))) > 0"
    assert train.evaluate(painted)


def test_a_loss_that_is_no_number_ends_it(train: Page) -> None:
    """A loss that is no number ends training, and is told with step and op.

    After a reset all is well.
    """
    device(train, "webgpu")
    train.select_option("#kind", "sgd")
    assert train.input_value("#rate") == "0.03"
    train.fill("#rate", "1000")
    train.click("#start")
    state(train, "stopped")
    problem = train.locator(".problem")
    told = problem.inner_text()
    assert re.search(r"Stopped: the loss of step \d+ is no number", told)
    assert re.search(r"step \d+: the loss is (inf|nan|-inf); \w+ .* made ", told)
    problem.get_by_role("button", name="Reset").click()
    state(train, "ready")
    expect(problem).to_have_count(0)
    assert train.inner_text("#figure-steps") == "–"
    train.fill("#rate", "0.03")
    train.click("#start")
    made(train, 10)
    paused(train)
    assert np.isfinite(losses(train)).all()


@pytest.mark.full
def test_a_lost_gpu_costs_some_steps(train: Page) -> None:
    """A lost GPU puts training back to where it was judged last.

    NumPy goes on from there, or the GPU opened again.
    """
    device(train, "webgpu")
    train.fill("#steps", "100000")
    train.click("#start")
    made(train, 50)
    train.evaluate("lose()")
    state(train, "lost")
    problem = train.locator(".problem")
    expect(problem).to_contain_text("The GPU was lost")
    back = int(train.inner_text("#figure-steps"))
    assert back >= 25
    assert back % 25 == 0
    problem.get_by_role("button", name="Try the GPU again").click()
    made(train, back + 10)
    expect(problem).to_have_count(0)
    assert "swiftshader" in train.inner_text("#why")
    train.evaluate("lose()")
    state(train, "lost")
    problem.get_by_role("button", name="Go on with NumPy").click()
    made(train, back + 30)
    assert "NumPy" in train.inner_text("#why")
    paused(train)
    train.click("#reset")
    state(train, "ready")
    device(train, "webgpu")
    train.fill("#steps", "1")
    train.click("#start")  # it is opened again where it is asked for
    state(train, "done")
    train.evaluate("lose()")
    train.click("#example")
    state(train, "lost")
    assert train.inner_text("#figure-steps") == "1"
    problem.get_by_role("button", name="Try the GPU again").click()
    state(train, "done")


def test_files_are_opened_again(train: Page) -> None:
    """A state goes on, a network judges, anything else is refused with its reason."""
    device(train, "cpu")
    train.fill("#steps", "25")
    train.click("#start")
    state(train, "done")
    first = losses(train)
    _, moments = saved(train, "#save-state")
    _, network = saved(train, "#save")
    train.click("#reset")
    state(train, "ready")
    train.set_input_files("#open", as_chosen("a.rlxg", network))
    said = train.locator("#file-said")
    expect(said).to_contain_text("a.rlxg judges what is heard")
    train.click("#example")
    expect(train.locator("#hear-said")).to_contain_text("says “")
    train.set_input_files("#open", as_chosen("b.rlxg", b"no graph"))
    expect(train.locator(".problem")).to_contain_text("b.rlxg cannot be opened")
    train.set_input_files("#open", as_chosen("c.npz", moments))
    expect(said).to_contain_text("c.npz: go on from step 25")
    expect(train.locator(".problem")).to_have_count(0)
    train.click("#start")
    state(train, "done")
    assert train.inner_text("#figure-steps") == "50"
    np.testing.assert_array_equal(losses(train)[:25], first)


def voice(vowel: str) -> str:
    """Two seconds of a vowel, for the microphone of SPY."""
    with training_demo() as demo:
        vowels = demo.vowels
        said = vowels.utterances(np.random.default_rng(7), 3, 1)
        one = said.only(np.flatnonzero(said.vowel == vowels.NAMES.index(vowel))[:1])
        sound = 0.1 * vowels.sounds(np.random.default_rng(8), one, 2 * vowels.FS)[0]
    return base64.b64encode(sound.astype("<f4").tobytes()).decode()


@pytest.mark.full
def test_the_microphone_is_heard_and_trained_on(train: Page) -> None:
    """The page tells a vowel that it hears, and learns two that are recorded here."""
    device(train, "cpu")
    train.click("#start")
    state(train, "done")
    train.evaluate("voice => { globalThis.voice = voice }", voice("ee"))
    train.click("#listen")
    heard = train.locator("#hear-said")
    expect(heard).to_have_text("Listening: “ee”")
    expect(train.locator("#bars dt[data-best]")).to_contain_text("ee")
    train.click("#listen")
    expect(train.locator("#listen")).to_have_attribute("aria-pressed", "false")
    for vowel in ("ee", "ah"):
        train.evaluate("voice => { globalThis.voice = voice }", voice(vowel))
        train.get_by_role("button", name=f"Record “{vowel}”").click()
        row = train.locator("#own li").filter(has_text=vowel)
        expect(row).to_contain_text("frames")
    train.click("#reset")
    state(train, "ready")
    train.check('input[name="data"][value="own"]', force=True)
    train.fill("#steps", "50")
    train.click("#start")
    state(train, "done")
    assert right(train) > 0.9
    train.click("#forget")
    expect(train.locator('input[name="data"][value="made"]')).to_be_checked()


@pytest.mark.full
def test_on_a_phone_without_a_gpu(open_page: OpenPage) -> None:
    """NumPy trains, the page says why, and nothing scrolls sideways."""
    page = changed(open_page, "train/", "worker.js", lambda text: text + NO_GPU)
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    state(page, "ready", START_MS)
    expect(page.locator(".problem")).to_contain_text("No WebGPU here")
    assert page.is_disabled('input[value="webgpu"]')
    page.fill("#steps", "25")
    page.click("#start")
    state(page, "done")
    assert "NumPy" in page.inner_text("#why")
    assert "there is no WebGPU here" in page.inner_text("#why")
    page.click("#numbers summary")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.fill("#steps", "0")
    page.click("#start")
    expect(page.locator("#steps:invalid")).to_be_focused()
