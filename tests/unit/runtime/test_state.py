"""State that stays on a device from run to run, everywhere, as its page has it."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Resident

PAGE = Path(__file__).parents[3] / "site/pages/howto/keep-data.md"
PLACES = [
    *("cpu", "torch-cpu", "jax-cpu", "mlx"),
    *(pytest.param(d, marks=pytest.mark.requires_wgpu) for d in ("vulkan", "opengl")),
]


def examples() -> list[str]:
    """The code of the page's section on state: the average, the cache."""
    section = PAGE.read_text("utf-8").split("\n## ")[1]
    assert section.startswith("State from run to run")
    return re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def read(place: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that come back from the engine of the place, read by read."""
    engine: Any = pool.backend(place)
    found: list[int] = []
    if (port := getattr(engine, "port", None)) is not None:
        inner = port.read

        async def counted(handle: int, offset: int, nbytes: int) -> memoryview:
            found.append(nbytes)
            raw: memoryview = await inner(handle, offset, nbytes)
            return raw

        monkeypatch.setattr(port, "read", counted)
        return found
    get, run = engine.get, engine.run_resident

    async def got(one: Resident) -> Any:
        array = await get(one)
        found.append(array.nbytes)
        return array

    async def ran(*args: Any) -> list[Any]:
        outs: list[Any] = await run(*args)
        found.extend(out.nbytes for out in outs if isinstance(out, np.ndarray))
        return outs

    monkeypatch.setattr(engine, "get", got)
    monkeypatch.setattr(engine, "run_resident", ran)
    return found


def held(place: str) -> int:
    """Arrays that lie there, and buffers of its port."""
    gc.collect()
    port = getattr(pool.backend(place), "port", None)
    alive = sum(issubclass(type(one), Resident) for one in gc.get_objects())
    return alive + len(port.live if port else ())


def test_an_average_runs_many_times_and_is_read_once(
    place: str, read: list[int]
) -> None:
    """An average runs by the page's own lines, is read once and piles up nothing.

    It takes a fifth of the page's thousand runs: what piles up shows in them.
    """
    code = examples()[0].replace('"gpu"', f'"{place}"')
    made, loop, rest = re.split(r"(?=^for |^print)", code, maxsplit=2, flags=re.M)
    assert "range(1000)" in loop
    names: dict[str, Any] = {}
    exec(made + loop.replace("1000", "3"), names)
    before = held(place)
    exec(loop.replace("1000", "197"), names)
    assert sum(read) == 0, read
    assert held(place) <= before + 4
    exec(rest, names)
    assert sum(read) == 64 * 256 * 4
    np.testing.assert_allclose(names["mean"].numpy(), 1 - 0.99**200, rtol=1e-4)
    names["average"].close()


def test_a_cache_grows_where_it_lies(place: str, read: list[int]) -> None:
    """One row per token comes back, and each is attention over those before it."""
    names: dict[str, Any] = {"np": np, "rlx": rlx}
    code = examples()[1].replace('"gpu"', f'"{place}"')
    exec(code.replace("most, width = 256", "most, width = 40"), names)
    tokens, answer = names["tokens"][:, 0], names["answer"]
    row = answer.nbytes
    assert len(tokens) == 40
    assert set(read) <= {0, row}, "answers alone, and waits for nothing"
    assert sum(read) == len(tokens) * row
    np.testing.assert_array_equal(names["cache"].numpy(), tokens)
    scores = tokens.astype(float) @ tokens[-1] / 8
    weights = np.exp(scores - scores.max())
    want = weights / weights.sum() @ tokens
    np.testing.assert_allclose(answer[0], want, rtol=1e-4, atol=1e-5)
    names["decode"].close()
