"""The network: log-mel bands of a sound, one convolution along them, one dense layer.

All of it is written with NumPy and the ops of rlxweb, and becomes graphs: what makes
the bands, the step of a training, the judgement of examples, and the whole way from
sound to probabilities, which is what a saved file has.
"""

import numpy as np
from vowels import FRAME, FS, NAMES

import rlxweb as rlx

BANDS = 40
WIDE = 7  # bands that one filter sees
STRIDE = 2
LOWEST = 60.0  # Hz
KINDS = ("sgd", "adam", "adamw")


def mel_filters():
    """Triangles on the mel scale, float32 [BANDS, FRAME // 2 + 1]."""
    top = 2595.0 * np.log10(1.0 + np.array([LOWEST, FS / 2]) / 700.0)
    hz = 700.0 * (10.0 ** (np.linspace(*top, BANDS + 2) / 2595.0) - 1.0)
    bins = np.arange(FRAME // 2 + 1) * FS / FRAME
    low, middle, high = hz[:-2, None], hz[1:-1, None], hz[2:, None]
    up, down = (bins - low) / (middle - low), (high - bins) / (high - middle)
    return np.maximum(0.0, np.minimum(up, down)).astype(np.float32)


FILTERS = mel_filters()
WINDOW = np.hanning(FRAME + 1)[:-1].astype(np.float32)


def bands(sound):
    """Log-mel bands [n, BANDS] of sounds [n, FRAME], less their mean, the loudness."""
    spoken = np.concatenate([sound * WINDOW, 0.0 * sound], axis=-1)
    mel = rlx.nn.log_mel(rlx.nn.fft(spoken), FILTERS)
    return 4.0 * (mel - np.mean(mel, axis=-1, keepdims=True))


def first_params(hidden, seed):
    """The network before its first step, of so many filters."""
    rng = np.random.default_rng(seed)
    wide = hidden * (BANDS // STRIDE)

    def drawn(fan_in, *shape):
        return rng.normal(0.0, np.sqrt(2.0 / fan_in), shape).astype(np.float32)

    return {
        "filters": drawn(WIDE, hidden, 1, WIDE),
        "filter_bias": np.zeros((hidden, 1), np.float32),
        "dense": drawn(wide, wide, len(NAMES)),
        "dense_bias": np.zeros(len(NAMES), np.float32),
    }


def scores(params, x):
    """One score for each vowel [n, 5] of bands [n, BANDS]."""
    row = np.expand_dims(x, 1)
    seen = rlx.nn.conv(row, params["filters"], stride=STRIDE, padding=WIDE // 2)
    seen = np.maximum(seen + params["filter_bias"], 0.0)
    flat = np.reshape(seen, (seen.shape[0], params["dense"].shape[0]))
    return flat @ params["dense"] + params["dense_bias"]


def loss_of(params, x, y):
    """Mean cross entropy; y has a 1 for what was said [n, 5]."""
    return -np.mean(np.sum(y * rlx.nn.log_softmax(scores(params, x)), axis=-1))


def optimizer(kind, rate):
    """One of KINDS; the rate may be an array that comes with the batch."""

    def of(count):
        return rate

    if kind == "sgd":
        return rlx.SGD(of, momentum=0.9)
    return rlx.AdamW(of) if kind == "adamw" else rlx.Adam(of)


def step_by(kind):
    """A step of a training: (state, batch) → (state, loss), as rlx.train takes it."""

    def step(state, batch):
        params, moments = state
        x, y, rate = batch
        loss, grads = rlx.value_and_grad(loss_of)(params, x, y)
        return optimizer(kind, rate).update(params, grads, moments), loss

    return step


def first_state(kind, hidden, seed):
    """What a training begins with."""
    params = first_params(hidden, seed)
    return params, optimizer(kind, 1.0).init(params)


def judged(params, x, y):
    """The probabilities of examples [n, 5], and their mean loss."""
    return rlx.nn.softmax(scores(params, x)), loss_of(params, x, y)


def heard(params, sound):
    """The probabilities of sounds [n, 5]."""
    return rlx.nn.softmax(scores(params, bands(sound)))


def whole(params):
    """From sound to probabilities with these weights inside, compiled, any batch."""

    def vowel_probabilities(sound):
        return heard(params, sound)

    made = rlx.function(
        vowel_probabilities, device="cpu", dims={"sound": ("batch", FRAME)}
    )
    return made.compiled(np.zeros((1, FRAME), np.float32))
