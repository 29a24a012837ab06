"""Drive the page that trains a network as a visitor would.

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
from tests.browser.page_monitor import START_MS, PageMonitor
from tests.browser.patched_demo_page import NO_GPU, OpenPage, open_with_change
from tests.training_demo_loader import training_demo

pytestmark = pytest.mark.requires_browser

STEPS = 100
RATE, BATCH, FILTERS = 0.003, 32, 16
# Keeps the Worker, to lose the GPU behind the page's back, and makes the microphone
# hear what a test left in `vowel_base64`.
SPY_JS = """
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
def opened_train_page(
    browser: Browser, site_url: str
) -> Iterator[tuple[Page, PageMonitor]]:
    """Yield one page, and its monitor, for the tests of this file."""
    watch = PageMonitor(site_url)
    page = watch.open_page(browser, "demo/train/", SPY_JS)
    yield wait_for_state(page, "ready", START_MS), watch
    page.context.close()


@pytest.fixture
def train_page(opened_train_page: tuple[Page, PageMonitor]) -> Iterator[Page]:
    """Yield the page with no network and its initial settings."""
    page, watch = opened_train_page
    page.select_option("#kind", "adam")
    page.fill("#rate", str(RATE))
    page.fill("#steps", str(STEPS))
    yield page
    if page.locator("#training").get_attribute("data-state") != "ready":
        page.click("#reset")
        wait_for_state(page, "ready")
    watch.check()


@pytest.fixture(scope="module")
def local_training() -> tuple[npt.NDArray[np.float64], dict[str, Any]]:
    """Run the same training with `rlxweb.train` on this machine; return its losses and
    parameters.
    """
    with training_demo() as demo:
        x, y = demo.data.Data().part("train", "made")

        def batch(n: int) -> Any:
            indices = np.random.default_rng([0, n]).integers(0, len(x), BATCH)
            return x[indices], y[indices], np.float32(RATE)

        initial_state = demo.network.first_state("adam", FILTERS, 0)
        step = demo.network.training_step("adam")
        training = rlx.train(step, batch, initial_state, steps=STEPS, device="cpu")
    return training.losses, training.state[0]


def wait_for_state(page: Page, name: str, timeout: float = 60_000) -> Page:
    """Wait until the training is ready, running, paused, done, stopped or lost; return
    the page.
    """
    page.wait_for_selector(f'#training[data-state="{name}"]', timeout=timeout)
    return page


def select_device(page: Page, name: str) -> None:
    """Select the device; the button may be below the window's fixed bottom line."""
    button = page.locator(f'input[name="device"][value="{name}"]')
    button.evaluate("button => button.scrollIntoView({ block: 'center' })")
    button.check(force=True)


def wait_for_steps(page: Page, steps: int) -> None:
    """Wait until this many steps are done."""
    steps_js = "Number(document.querySelector('#figure-steps').textContent)"
    page.wait_for_function(f"{steps_js} >= {steps}", timeout=60_000)


def pause_training(page: Page) -> int:
    """Pause the training before its end and return the number of steps done."""
    page.click("#start")
    wait_for_state(page, "paused")
    return int(page.inner_text("#figure-steps"))


def pause_after_a_step(page: Page) -> None:
    """Make the page itself press Pause as soon as a step is done."""
    page.evaluate(
        """() => {
        const steps = document.querySelector("#figure-steps");
        new MutationObserver((_, watch) => {
            if (Number(steps.textContent) < 1) return;
            watch.disconnect();
            document.querySelector("#start").click();
        }).observe(steps, { childList: true, characterData: true, subtree: true }); }"""
    )


def download_file(page: Page, button: str) -> tuple[str, bytes]:
    """Click a save button and return the file's name and bytes."""
    with page.expect_download() as download:
        page.click(button)
    file = download.value
    return file.suggested_filename, Path(file.path()).read_bytes()


def losses(page: Page) -> npt.NDArray[np.float64]:
    """Return the losses of all steps from the saved state."""
    name, raw = download_file(page, "#save-state")
    assert name == "vowels-state.npz"
    with np.load(io.BytesIO(raw)) as arrays:
        return np.array(arrays["losses"])


def shown_accuracy(page: Page) -> float:
    """Return the shown share of held-out examples that are right."""
    return float(page.inner_text("#figure-right").removesuffix(" %")) / 100


def input_files(name: str, raw: bytes) -> list[dict[str, Any]]:
    """Return a file in the form in which Playwright gives it to an input element."""
    return [{"name": name, "mimeType": "", "buffer": raw}]


@pytest.mark.full("cpu")
@pytest.mark.parametrize("device_name", ["webgpu", "cpu"])
def test_it_learns_to_tell_vowels(
    train_page: Page, local_training: Any, device_name: str
) -> None:
    """The page learns to tell vowels by a desktop's curve, paused or not.

    The saved network judges there as here.
    """
    select_device(train_page, device_name)
    if device_name == "cpu":
        pause_after_a_step(train_page)
    train_page.click("#start")
    if device_name == "cpu":
        wait_for_state(train_page, "paused")
        assert 0 < int(train_page.inner_text("#figure-steps")) < STEPS
        expect(train_page.locator("#start")).to_have_text("Continue")
        expect(train_page.locator("#kind")).to_be_disabled()
        train_page.click("#start")
    wait_for_state(train_page, "done")
    assert (
        "swiftshader" if device_name == "webgpu" else "NumPy"
    ) in train_page.inner_text("#said")
    assert "you chose it" in train_page.inner_text("#why")
    assert shown_accuracy(train_page) > 0.9
    expected_losses, _ = local_training
    np.testing.assert_allclose(
        losses(train_page), expected_losses, rtol=2e-3, atol=2e-4
    )
    name, raw = download_file(train_page, "#save")
    assert name == "vowels.rlxg"
    check_saved_network(train_page, raw)
    assert float(train_page.inner_text("#figure-ms").removesuffix(" ms")) > 0
    assert int(train_page.inner_text("#figure-rate").replace(",", "")) > 0


def check_saved_network(page: Page, raw: bytes) -> None:
    """Check a page's network on this machine: the same share right, the same
    numbers.
    """
    model = rlx.load(raw)
    page.click("#example")
    expect(page.locator("#hear-said")).to_contain_text("says “")
    message = page.inner_text("#hear-said")
    values = page.locator("#bars .value")
    shown_values = [
        float(value.get_attribute("title") or "nan") for value in values.all()
    ]
    seed = int(page.get_attribute("#bars", "data-seed") or 0)
    with training_demo() as demo:
        data, vowels = demo.data.Data(), demo.vowels
        example_info, _, frame = data.example(seed, 0.6)
        assert f"says “{example_info['vowel']}”" in message
        x = frame[None] / vowels.rms(frame)
        probabilities = model.run({"sound": x.astype(np.float32)})["probabilities"]
        np.testing.assert_allclose(probabilities[0], shown_values, rtol=1e-3, atol=1e-5)
        rng = np.random.default_rng(demo.data.SEED)
        utterances = [vowels.utterances(rng, n, demo.data.EACH) for n in (48, 12)]
        sounds = [vowels.sounds(rng, value) for value in utterances][1]
    predicted = model.run({"sound": sounds})["probabilities"].argmax(1)
    share = (predicted == utterances[1].vowel).mean()
    assert share == pytest.approx(shown_accuracy(page), abs=0.0051)


def test_curve_and_confusions_have_text_alternatives(train_page: Page) -> None:
    """The loss curve is given in words and as a table, with the confusions and a spoken
    line.
    """
    select_device(train_page, "cpu")
    train_page.locator("#start").focus()
    train_page.keyboard.press("Enter")
    wait_for_state(train_page, "done")
    label = train_page.get_attribute("#curve", "aria-label") or ""
    assert re.match(
        r"Loss from \d\.\d+ at step 1 to 0\.\d+ at step 100\. For held", label
    )
    train_page.click("#numbers summary")
    rows = train_page.locator("#rows tr")
    expect(rows).to_have_count(STEPS // 25)
    assert rows.last.locator("td").first.inner_text() == str(STEPS)
    cells = [
        int(text) for text in train_page.locator("#confusion td").all_inner_texts()
    ]
    assert sum(cells) == 300
    assert sum(cells[::6]) / 300 == pytest.approx(
        shown_accuracy(train_page), abs=0.0006
    )
    assert "% of the held-out examples correct" in train_page.inner_text(
        ".said[role=status]"
    )
    pixels_js = (
        "curve => [...curve.getContext('2d').getImageData(0, 0, curve.width, 20).data]"
    )
    is_painted_js = f"Math.max(...({pixels_js})(document.querySelector('#curve'))) > 0"
    assert train_page.evaluate(is_painted_js)


def test_nonfinite_loss_stops_training(train_page: Page) -> None:
    """A loss that is no number ends training, and is told with step and op.

    After a reset all is well.
    """
    select_device(train_page, "webgpu")
    train_page.select_option("#kind", "sgd")
    assert train_page.input_value("#rate") == "0.03"
    train_page.fill("#rate", "1000")
    train_page.click("#start")
    wait_for_state(train_page, "stopped")
    problem = train_page.locator(".problem")
    message = problem.inner_text()
    assert re.search(r"Stopped: the loss of step \d+ is not a number", message)
    assert re.search(r"step \d+: the loss is (inf|nan|-inf); \w+ .* produced ", message)
    problem.get_by_role("button", name="Reset").click()
    wait_for_state(train_page, "ready")
    expect(problem).to_have_count(0)
    assert train_page.inner_text("#figure-steps") == "–"
    train_page.fill("#rate", "0.03")
    train_page.click("#start")
    wait_for_steps(train_page, 10)
    pause_training(train_page)
    assert np.isfinite(losses(train_page)).all()


@pytest.mark.full
def test_a_lost_gpu_costs_some_steps(train_page: Page) -> None:
    """A lost GPU puts training back to where it was judged last.

    NumPy goes on from there, or the GPU opened again.
    """
    select_device(train_page, "webgpu")
    train_page.fill("#steps", "100000")
    train_page.click("#start")
    wait_for_steps(train_page, 50)
    train_page.evaluate("lose()")
    wait_for_state(train_page, "lost")
    problem = train_page.locator(".problem")
    expect(problem).to_contain_text("The GPU was lost")
    last_step = int(train_page.inner_text("#figure-steps"))
    assert last_step >= 25
    assert last_step % 25 == 0
    problem.get_by_role("button", name="Try the GPU again").click()
    wait_for_steps(train_page, last_step + 10)
    expect(problem).to_have_count(0)
    assert "swiftshader" in train_page.inner_text("#why")
    train_page.evaluate("lose()")
    wait_for_state(train_page, "lost")
    problem.get_by_role("button", name="Continue with NumPy").click()
    wait_for_steps(train_page, last_step + 30)
    assert "NumPy" in train_page.inner_text("#why")
    pause_training(train_page)
    train_page.click("#reset")
    wait_for_state(train_page, "ready")
    select_device(train_page, "webgpu")
    train_page.fill("#steps", "1")
    train_page.click("#start")  # it is opened again where it is asked for
    wait_for_state(train_page, "done")
    train_page.evaluate("lose()")
    train_page.click("#example")
    wait_for_state(train_page, "lost")
    assert train_page.inner_text("#figure-steps") == "1"
    problem.get_by_role("button", name="Try the GPU again").click()
    wait_for_state(train_page, "done")


def test_saved_files_are_reopened(train_page: Page) -> None:
    """A saved state resumes, a network judges, and any other file is refused with the
    reason.
    """
    select_device(train_page, "cpu")
    train_page.fill("#steps", "25")
    train_page.click("#start")
    wait_for_state(train_page, "done")
    first = losses(train_page)
    _, moments = download_file(train_page, "#save-state")
    _, network = download_file(train_page, "#save")
    train_page.click("#reset")
    wait_for_state(train_page, "ready")
    train_page.set_input_files("#open", input_files("a.rlxg", network))
    message = train_page.locator("#file-said")
    expect(message).to_contain_text("a.rlxg, with ")
    expect(message).to_contain_text("weights, is used for listening")
    train_page.click("#example")
    expect(train_page.locator("#hear-said")).to_contain_text("says “")
    train_page.set_input_files("#open", input_files("b.rlxg", b"no graph"))
    expect(train_page.locator(".problem")).to_contain_text("b.rlxg cannot be opened")
    train_page.set_input_files("#open", input_files("c.npz", moments))
    expect(message).to_contain_text("c.npz: continue from step 25")
    expect(train_page.locator(".problem")).to_have_count(0)
    train_page.click("#start")
    wait_for_state(train_page, "done")
    assert train_page.inner_text("#figure-steps") == "50"
    np.testing.assert_array_equal(losses(train_page)[:25], first)


def vowel_base64(vowel: str) -> str:
    """Return two seconds of a vowel, in base64, for the microphone of SPY_JS."""
    with training_demo() as demo:
        vowels = demo.vowels
        utterances = vowels.utterances(np.random.default_rng(7), 3, 1)
        utterance = utterances.only(
            np.flatnonzero(utterances.vowel == vowels.NAMES.index(vowel))[:1]
        )
        sound = (
            0.1 * vowels.sounds(np.random.default_rng(8), utterance, 2 * vowels.FS)[0]
        )
    return base64.b64encode(sound.astype("<f4").tobytes()).decode()


@pytest.mark.full
def test_the_microphone_is_heard_and_trained_on(train_page: Page) -> None:
    """The page tells a vowel that it hears, and learns two that are recorded here."""
    select_device(train_page, "cpu")
    train_page.click("#start")
    wait_for_state(train_page, "done")
    train_page.evaluate("voice => { globalThis.voice = voice }", vowel_base64("ee"))
    train_page.click("#listen")
    heard = train_page.locator("#hear-said")
    expect(heard).to_have_text("Listening: “ee”")
    expect(train_page.locator("#bars dt[data-best]")).to_contain_text("ee")
    train_page.click("#listen")
    expect(train_page.locator("#listen")).to_have_attribute("aria-pressed", "false")
    for vowel in ("ee", "ah"):
        train_page.evaluate(
            "voice => { globalThis.voice = voice }", vowel_base64(vowel)
        )
        train_page.get_by_role("button", name=f"Record “{vowel}”").click()
        row = train_page.locator("#own li").filter(has_text=vowel)
        expect(row).to_contain_text("frames")
    train_page.click("#reset")
    wait_for_state(train_page, "ready")
    train_page.check('input[name="data"][value="own"]', force=True)
    train_page.fill("#steps", "50")
    train_page.click("#start")
    wait_for_state(train_page, "done")
    assert shown_accuracy(train_page) > 0.9
    train_page.click("#forget")
    expect(train_page.locator('input[name="data"][value="made"]')).to_be_checked()


@pytest.mark.full
def test_on_a_phone_without_a_gpu(open_page: OpenPage) -> None:
    """NumPy trains, the page says why, and nothing scrolls sideways."""
    page = open_with_change(
        open_page, "train/", "worker.js", lambda text: text + NO_GPU
    )
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    wait_for_state(page, "ready", START_MS)
    expect(page.locator(".problem")).to_contain_text("WebGPU is not available")
    assert page.is_disabled('input[value="webgpu"]')
    page.fill("#steps", "25")
    page.click("#start")
    wait_for_state(page, "done")
    assert "NumPy" in page.inner_text("#why")
    assert "WebGPU is not available" in page.inner_text("#why")
    page.click("#numbers summary")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.fill("#steps", "0")
    page.click("#start")
    expect(page.locator("#steps:invalid")).to_be_focused()
