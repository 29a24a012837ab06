"""Races between the ways to run an op: timed, judged, kept, and what they decide."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.pool import pool
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.calibration import races as module
from rlxweb.calibration.known import known_record
from rlxweb.calibration.races import HEATS, Heat, enough, races, ranked
from rlxweb.calibration.stopwatch import Stopwatch
from rlxweb.calibration.store import store
from rlxweb.compile.pipeline import compile_graph
from rlxweb.cost.race import Race, nearest
from rlxweb.cost.record import Calibration, Point
from rlxweb.cost.record_json import from_json
from rlxweb.devices.place import identity_of, parse_place
from rlxweb.errors import GpuTimeout, InputError
from rlxweb.gpu.drive import drive
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry
from rlxweb.recipes.reduce_variants import line_reduction
from rlxweb.recipes.variants import VARIANTS, Variant, table_of

PLACE = parse_place("vulkan:llvmpipe")
TABLE = table_of(VARIANTS)
QUICK = Stopwatch(samples=3, sample_ns=0, budget_ns=1e6)
FFT = Race("fft", (8, 512), (("fft, unrolled passes", 1.0), ("fft", 2.0)), (), TABLE)


@pytest.fixture
def lavapipe() -> Iterator[WebGpuBackend]:
    """The pool's, which forgets what it was told to prefer."""
    backend = pool.backend("vulkan", "llvmpipe")
    assert isinstance(backend, WebGpuBackend)
    yield backend
    backend.prefer(())


def own(backend: WebGpuBackend, *rows: Variant) -> WebGpuBackend:
    """The same device with other rows."""
    return WebGpuBackend(backend.port, variants=rows)


def graph_of(op: str, *attrs: Any) -> rlx.Graph:
    graph = rlx.Graph(op)
    graph.set_outputs([getattr(graph, op)(graph.input("x", (8, 512)), *attrs)])
    return graph


def chosen(backend: WebGpuBackend, graph: rlx.Graph | None = None) -> str:
    """The way of the graph's op; of an FFT where none is given."""
    found = backend.recipes.choose(*(asked_of(graph or graph_of("fft"))))
    return "" if found is None else found.variant


def asked_of(graph: rlx.Graph) -> Any:
    node = graph.node(graph.outputs[0])
    types = tuple(graph.node(i).type for i in node.inputs)
    return registry.get(node.op), types, node.type, dict(node.attrs)


def op_of(heat: Heat) -> str:
    graph = heat.graph(1 if heat.of_rows else heat.width)
    return graph.node(graph.outputs[0]).op


def test_the_faster_way_is_first_and_of_equals_the_earlier() -> None:
    took = {"a": 104.0, "b": 100.0, "c": 10.0, "d": 9.0, "e": 9.1}
    want = ("d", 9.0), ("e", 9.1), ("c", 10.0), ("a", 104.0), ("b", 100.0)
    assert ranked(took) == want
    assert ranked({}) == ()


def test_the_way_there_and_back_is_a_small_part_of_a_sample() -> None:
    """A run of 10 µs behind a trip of 150 µs; one of a second is done once."""
    now = 0

    def run(times: int, each: int = 10_000) -> None:
        nonlocal now
        now += 150_000 + times * each

    watch = Stopwatch(clock=lambda: now)
    assert 150_000 < 0.1 * enough(run, watch) * 10_000
    assert enough(partial(run, each=10**9), watch) == 1


def test_every_op_is_raced_once_before_any_is_again() -> None:
    ops = [op_of(heat) for heat in HEATS]
    assert len(set(ops[: len(set(ops))])) == len(set(ops)) > 5


@pytest.mark.requires_wgpu
def test_every_way_that_may_be_taken_is_raced(
    lavapipe: WebGpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ways are raced in turns, the op's own kernel too; the fastest comes first."""
    fft = [heat for heat in HEATS if heat.width == 512][:1]
    monkeypatch.setattr(module, "HEATS", fft)
    steps: list[str] = []
    (race,) = races(lavapipe, QUICK, 60.0, steps.append)
    assert {name for name, _ in race.ways} == {
        "fft",
        "fft, team of lanes a row",
        "fft, workgroup a row",
        "fft, unrolled passes",
    }
    assert race.ways == ranked(dict(race.ways)), "the fastest first"
    assert min(ns for _, ns in race.ways) > 0
    assert (race.op, race.size, race.wrong) == ("fft", (128, 512), ())
    assert steps == ["race of fft, 128 × 512"]
    assert f"fft 128 × 512: {race.ways[0][0]}; " in str(race)
    assert list(races(lavapipe, QUICK, 0.0, steps.append)) == []


@pytest.mark.parametrize("heat", HEATS, ids=lambda heat: f"{heat.width}")
def test_heats_are_graphs_of_one_op_by_rows(heat: Any) -> None:
    """Heats work row by row, so that the ends of an answer stand for the whole."""
    graph = heat.graph(heat.shape(1 << 22)[0])
    assert registry.get(graph.node(graph.outputs[0]).op).name
    assert heat.shape(1 << 22)[0] * heat.width <= 1 << 22


@pytest.mark.requires_wgpu
def test_a_wrong_way_is_left_out_and_said(
    lavapipe: WebGpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong way is left out and said, however fast it is; no engine takes it."""
    wrong = Variant("sum, the largest", "sum", line_reduction("max"))
    right = Variant("sum, many lanes", "sum", line_reduction("sum"))
    engine = own(lavapipe, wrong, right)
    total = graph_of("sum", 1)
    assert chosen(engine, total) == wrong.name
    monkeypatch.setattr(module, "VARIANTS", engine.recipes.rows)
    monkeypatch.setattr(module, "HEATS", [one for one in HEATS if op_of(one) == "sum"])
    race, *_ = races(engine, QUICK, 60.0, lambda step: None)
    ((name, why),) = race.wrong
    assert name == wrong.name
    assert "elements are wrong" in why
    assert {way for way, _ in race.ways} == {"sum", right.name}
    engine.prefer([race])
    assert chosen(engine, total) == race.ways[0][0]


@pytest.mark.requires_wgpu
def test_a_way_that_hangs_ends_the_races_and_not_the_calibration(
    lavapipe: WebGpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A way that hangs is named and never taken; the others keep the table's order."""
    engine = own(lavapipe, *VARIANTS)
    forced = engine.forced

    def hangs(way: str) -> Any:
        if "team of lanes" in way:
            raise GpuTimeout("wait", "it did not finish")
        return forced(way)

    monkeypatch.setattr(engine, "forced", hangs)
    (race,) = races(engine, QUICK, 60.0, lambda step: None)
    assert race.ways == ()
    assert race.wrong[0][0] == "fft, team of lanes a row"
    assert str(race).endswith("nobody came in")
    assert chosen(engine) == "fft, team of lanes a row"
    engine.prefer([race])
    assert chosen(engine) == "fft, workgroup a row"


@pytest.mark.requires_wgpu
def test_an_engine_takes_the_order_of_a_race(lavapipe: WebGpuBackend) -> None:
    """A race orders the ways, also the op's own kernel; without it all is as before."""
    assert chosen(lavapipe) == "fft, team of lanes a row"
    lavapipe.prefer([FFT])
    assert chosen(lavapipe) == "fft, unrolled passes"
    plain = dataclasses.replace(FFT, ways=(("fft", 1.0), *FFT.ways[:1]))
    lavapipe.prefer([plain])
    assert chosen(lavapipe) == "fft"
    lavapipe.prefer([dataclasses.replace(FFT, table="another")])
    assert chosen(lavapipe) == "fft, team of lanes a row"
    lavapipe.prefer([FFT])
    lavapipe.prefer([])
    assert chosen(lavapipe) == "fft, team of lanes a row"


def test_the_nearest_race_decides() -> None:
    """The nearest race in octaves of rows and width decides, of the same op alone."""

    def race(rows: int, width: int) -> Race:
        return Race("fft", (rows, width), (("fft", 1.0),))

    near, far = race(1024, 512), race(16, 8192)
    for rows, width, wanted in ((1000, 512, near), (8, 4096, far), (64, 256, near)):
        x = TensorType((rows, width), DType.F32)
        assert nearest([far, near], "fft", (x,)) is wanted
        assert nearest([far, near], "rfft", (x,)) is None
    assert nearest([near], "fft", (TensorType((0, 0), DType.F32),)) is near


def record(**more: Any) -> Calibration:
    names = ("engine", "backend", "driver", "rlxweb", "machine")
    identity = identity_of(PLACE)
    points = (Point("run", {}, 5.0),)
    known = dict(zip(names, identity, strict=False)) | more
    return Calibration(device="vulkan", points=points, made="now", **known)


@pytest.mark.requires_wgpu
def test_a_record_keeps_its_races_and_old_ones_have_none() -> None:
    """What no calibration could have written is refused."""
    kept = record(races=(dataclasses.replace(FFT, wrong=(("fft, x", "no"),)),))
    told = json.loads(json.dumps(kept.as_json()))
    assert from_json(told) == kept
    del told["races"]
    assert from_json(told).races == ()
    for broken in ([{"op": 1}], [kept.as_json()["races"][0] | {"ways": [["a", -1]]}]):
        with pytest.raises(InputError):
            from_json(told | {"races": broken})


@pytest.mark.requires_wgpu
def test_a_session_takes_what_was_raced(
    lavapipe: WebGpuBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session takes its engine's raced ways; the answer is the same without them."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    x = np.random.default_rng(0).standard_normal((8, 512)).astype(np.float32)

    def answer() -> Any:
        session = rlx.Session("vulkan", adapter="llvmpipe")
        return session.compile(graph_of("fft")).run({"x": x})[0]

    store.forget()
    before = answer()
    store.save(record(races=(FFT,)))
    after = answer()
    assert chosen(lavapipe) == "fft, unrolled passes"
    np.testing.assert_allclose(after, before, atol=1e-4)
    store.forget()
    for path in tmp_path.iterdir():
        path.unlink()
    assert known_record(PLACE) is None
    np.testing.assert_array_equal(answer(), before)
    assert chosen(lavapipe) == "fft, team of lanes a row"


@pytest.mark.requires_wgpu
def test_a_way_is_forced_by_name_and_none_by_no_name(lavapipe: WebGpuBackend) -> None:
    """A way is forced by name; by no name the op runs as it is declared."""
    plain = lavapipe.forced("")
    assert isinstance(plain, WebGpuBackend)
    assert chosen(plain) == "fft"
    plan = compile_graph(graph_of("fft"), plain.target)
    program = drive(plain.prepare(plan))
    drive(plain.release(program))
