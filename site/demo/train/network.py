"""Vowel network: log-mel bands of a sound, one convolution along them, one dense layer.

All of it is written with NumPy and the ops of rlxweb, and becomes graphs: what makes
the bands, the step of a training, the judgement of examples, and the whole way from
sound to probabilities, which is what a saved file has.
"""

import numpy as np
from vowels import FRAME, FS, NAMES

import rlxweb as rlx

BANDS = 40
FILTER_WIDTH = 7  # bands that one filter sees
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
    windowed = np.concatenate([sound * WINDOW, 0.0 * sound], axis=-1)
    mel = rlx.nn.log_mel(rlx.nn.fft(windowed), FILTERS)
    return 4.0 * (mel - np.mean(mel, axis=-1, keepdims=True))


def first_params(hidden, seed):
    """Return the initial parameters of a network with `hidden` filters."""
    rng = np.random.default_rng(seed)
    n_features = hidden * (BANDS // STRIDE)

    def random_weights(fan_in, *shape):
        return rng.normal(0.0, np.sqrt(2.0 / fan_in), shape).astype(np.float32)

    return {
        "filters": random_weights(FILTER_WIDTH, hidden, 1, FILTER_WIDTH),
        "filter_bias": np.zeros((hidden, 1), np.float32),
        "dense": random_weights(n_features, n_features, len(NAMES)),
        "dense_bias": np.zeros(len(NAMES), np.float32),
    }


def scores(params, x):
    """Return a score for each vowel [n, 5] of bands [n, BANDS]."""
    row = np.expand_dims(x, 1)
    features = rlx.nn.conv(
        row, params["filters"], stride=STRIDE, padding=FILTER_WIDTH // 2
    )
    features = np.maximum(features + params["filter_bias"], 0.0)
    flat = np.reshape(features, (features.shape[0], params["dense"].shape[0]))
    return flat @ params["dense"] + params["dense_bias"]


def cross_entropy(params, x, y):
    """Return the mean cross entropy; y has a 1 for the spoken vowel [n, 5]."""
    return -np.mean(np.sum(y * rlx.nn.log_softmax(scores(params, x)), axis=-1))


def optimizer(kind, rate):
    """Return the optimizer of a kind; the rate may be an array that comes with the
    batch.
    """

    def rate_at(count):
        return rate

    if kind == "sgd":
        return rlx.SGD(rate_at, momentum=0.9)
    return rlx.AdamW(rate_at) if kind == "adamw" else rlx.Adam(rate_at)


def training_step(kind):
    """Return the step of a training, (state, batch) → (state, loss), as rlx.train takes
    it.
    """

    def step(state, batch):
        params, moments = state
        x, y, rate = batch
        loss, grads = rlx.value_and_grad(cross_entropy)(params, x, y)
        return optimizer(kind, rate).update(params, grads, moments), loss

    return step


def first_state(kind, hidden, seed):
    """Return the initial state of a training."""
    params = first_params(hidden, seed)
    return params, optimizer(kind, 1.0).init(params)


def judge_examples(params, x, y):
    """Return the probabilities of examples [n, 5], and their mean loss."""
    return rlx.nn.softmax(scores(params, x)), cross_entropy(params, x, y)


def sound_probabilities(params, sound):
    """Return the probabilities of sounds [n, 5]."""
    return rlx.nn.softmax(scores(params, bands(sound)))


def compile_network(params):
    """Compile the graph from sound to probabilities, with these weights inside and any
    batch.
    """

    def vowel_probabilities(sound):
        return sound_probabilities(params, sound)

    traced = rlx.function(
        vowel_probabilities, device="cpu", dims={"sound": ("batch", FRAME)}
    )
    return traced.compiled(np.zeros((1, FRAME), np.float32))
