"""State that stays on a device between runs, with the examples of its manual page."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import DeviceBuffer

PAGE = Path(__file__).parents[3] / "site/pages/howto/keep-data.md"
DEVICE_PLACES = [
    *("cpu", "torch-cpu", "jax-cpu", "mlx"),
    *(pytest.param(d, marks=pytest.mark.requires_wgpu) for d in ("vulkan", "opengl")),
]


def page_examples() -> list[str]:
    """Return the code examples of the page's section on state: the average and the
    cache.
    """
    section = PAGE.read_text("utf-8").split("\n## ")[1]
    assert section.startswith("State from run to run")
    return re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)


@pytest.fixture(params=DEVICE_PLACES)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def readback_sizes(place: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes in bytes of all read-backs from the place's engine, in order."""
    engine: Any = pool.engine(place)
    sizes: list[int] = []
    if (port := getattr(engine, "port", None)) is not None:
        inner = port.read

        async def record_read(handle: int, offset: int, nbytes: int) -> memoryview:
            sizes.append(nbytes)
            raw: memoryview = await inner(handle, offset, nbytes)
            return raw

        monkeypatch.setattr(port, "read", record_read)
        return sizes
    get, run = engine.get, engine.run

    async def record_get(device_buffer: DeviceBuffer) -> Any:
        array = await get(device_buffer)
        sizes.append(array.nbytes)
        return array

    async def record_run(*args: Any) -> list[Any]:
        outputs: list[Any] = await run(*args)
        sizes.extend(
            output.nbytes for output in outputs if isinstance(output, np.ndarray)
        )
        return outputs

    monkeypatch.setattr(engine, "get", record_get)
    monkeypatch.setattr(engine, "run", record_run)
    return sizes


def live_device_objects(place: str) -> int:
    """Count live device buffers and buffers of the port."""
    gc.collect()
    port = getattr(pool.engine(place), "port", None)
    buffer_count = sum(
        issubclass(type(candidate), DeviceBuffer) for candidate in gc.get_objects()
    )
    return buffer_count + len(port.live_handles if port else ())


def test_running_average_is_read_once(place: str, readback_sizes: list[int]) -> None:
    """The page's running average is read back once and leaks no device memory.

    It takes a fifth of the page's thousand runs: what piles up shows in them.
    """
    code = page_examples()[0].replace('"gpu"', f'"{place}"')
    setup, loop, rest = re.split(r"(?=^for |^print)", code, maxsplit=2, flags=re.M)
    assert "range(1000)" in loop
    names: dict[str, Any] = {}
    exec(setup + loop.replace("1000", "3"), names)
    before = live_device_objects(place)
    exec(loop.replace("1000", "197"), names)
    assert sum(readback_sizes) == 0, readback_sizes
    assert live_device_objects(place) <= before + 4
    exec(rest, names)
    assert sum(readback_sizes) == 64 * 256 * 4
    np.testing.assert_allclose(names["mean"].numpy(), 1 - 0.99**200, rtol=1e-4)
    names["average"].close()


def test_cache_grows_on_the_device(place: str, readback_sizes: list[int]) -> None:
    """Only one row per token is read back, and it equals the attention over the tokens
    so far.
    """
    names: dict[str, Any] = {"np": np, "rlx": rlx}
    code = page_examples()[1].replace('"gpu"', f'"{place}"')
    exec(code.replace("most, width = 256", "most, width = 40"), names)
    tokens, answer = names["tokens"][:, 0], names["answer"]
    row = answer.nbytes
    assert len(tokens) == 40
    assert set(readback_sizes) <= {0, row}, "answers alone, and waits for nothing"
    assert sum(readback_sizes) == len(tokens) * row
    np.testing.assert_array_equal(names["cache"].numpy(), tokens)
    scores = tokens.astype(float) @ tokens[-1] / 8
    weights = np.exp(scores - scores.max())
    want = weights / weights.sum() @ tokens
    np.testing.assert_allclose(answer[0], want, rtol=1e-4, atol=1e-5)
    names["decode"].close()
