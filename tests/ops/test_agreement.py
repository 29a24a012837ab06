"""Every op on every engine gives NumPy's answer in float64, of samples by tier.

One test per op and engine names each sample that is wrong; `--full` takes all of them.
Types that an engine has not are refused with a reason, never computed in another type.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import numpy as np
import pytest

from rlxweb.backends import webgpu_bindings
from rlxweb.backends.protocol import Array, Resident
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.backends.webgpu_bindings import Lying
from rlxweb.backends.webgpu_residents import BufferResident
from rlxweb.compile.pipeline import compile_graph
from rlxweb.errors import LimitExceeded, RlxError
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from rlxweb.host.variants import VARIANTS
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import registry
from rlxweb.limits import shrunk
from rlxweb.recipes.variants import variants_of
from rlxweb.smoke import case as smoke
from rlxweb.smoke.special import odd_cases
from tests.agreement import Engine, engine, guarded, judge, lacked, strided
from tests.conftest import ADAPTERS, LACKS
from tests.ops.ways import Case, names, plain, through_views
from tests.tiers import Sampler, thinned

NAMES = names()
ODD: dict[str, list[smoke.Case]] = {}
for _case in odd_cases():
    ODD.setdefault(_case.op, []).append(_case)
A_THIRD = pytest.mark.parametrize("name", thinned(NAMES, 3))
"""A third of the ops, for promises that do not depend on the op."""
# By op and not by test, so that what one test compiled is still there for the next.
EACH_OP = pytest.mark.parametrize("name", NAMES, scope="module")


def wrong(one: Engine, cases: Iterable[Case]) -> list[str]:
    """Return a line for each case that the engine gets wrong, of one case at least."""
    said: list[str] = []
    cases = [*cases]
    assert cases, "no case was given"
    for case in cases:
        lacking = case.dtypes - one.backend.target.accepts
        try:
            said += told(one, case, one.run(case.graph, case.feeds)[0])
        except LimitExceeded as error:
            # Reads are merged word by word, so halves need a binding each.
            if DType.F16 not in case.dtypes or "this device binds 3" not in error.rule:
                said.append(f"{case.label} on {one.name}: {error}")
        except RlxError as error:  # one line, so that the other samples are seen too
            # What runs all the same, because its values fit, was judged like any other.
            if lacking and "the device has no" in str(error):
                continue
            said.append(f"{case.label} on {one.name}: {type(error).__name__}: {error}")
    return said


def told(one: Engine, case: Case, got: object) -> list[str]:
    """The line of one case, or none."""
    op = registry.get(case.graph.node(case.graph.outputs[0]).op)
    why = judge(got, case.right, case.out, op.tolerance)
    return [f"{case.label} on {one.name}: {why}"] if why else []


def odd_ones_wrong(one: Engine, name: str, sampled: Sampler) -> list[str]:
    """NaN and infinities in each input in turn: the lines of what is not NumPy's.

    Those of a sample are fed to one program.
    """
    said = []
    by_sample = groupby(ODD.get(name, ()), lambda odd: odd.name.split("/")[2])
    for odds in sampled([list(odds) for _, odds in by_sample], 1, quick=1):
        trials = {odd.name: odd.make() for odd in odds}
        with one.prepared(next(iter(trials.values())).graph) as run:
            whys = {k: trial.judge(run(trial.feeds)).why for k, trial in trials.items()}
        said += [f"{k} on {one.name}: {why}" for k, why in whys.items() if why]
    return said


def small(cases: Iterable[Case]) -> list[Case]:
    return [case for case in cases if case.is_small]


@pytest.mark.parametrize("name", NAMES)
def test_numpy_agrees(name: str, sampled: Sampler) -> None:
    """NumPy in float32 stays within the op's tolerance, plain and through views."""
    assert wrong(engine(None), plain(name)) == []
    assert odd_ones_wrong(engine(None), name, sampled) == []
    assert wrong(engine(None), sampled(through_views(name), 4, quick=4)) == []
    unoptimised = engine(None, optimise=False)
    assert wrong(unoptimised, sampled(small(plain(name)), 4, quick=2)) == []
    if name in {row.op for row in VARIANTS}:
        bare = engine(None, variants=False)
        assert wrong(bare, sampled(plain(name), 4, quick=4)) == []
        assert wrong(bare, sampled(through_views(name), 2, quick=1)) == []


@A_THIRD
def test_arrays_may_lie_anyhow(name: str) -> None:
    """Transposed, reversed and gappy arrays give what dense ones give."""
    one = engine(None)
    said = []
    for at, case in enumerate(small(plain(name))):
        feeds = {k: strided(array, at) for k, array in case.feeds.items()}
        said += told(one, case, one.run(case.graph, feeds)[0])
    assert said == []


@pytest.mark.requires_wgpu
@EACH_OP
def test_adapter_agrees(
    name: str, adapter: Want, is_full_tier: bool, sampled: Sampler
) -> None:
    """The adapter stays within the op's tolerance, or refuses the type.

    Of sums, products, norms, softmax, rankings also with one odd value in each input.
    The shaders are the same for all adapters: other tiers than the full one take more
    samples on one of them, and the first samples on the others.
    """
    one = engine(adapter)
    if not is_full_tier and adapter is not ADAPTERS["lavapipe"]:
        assert wrong(one, [*plain(name)[:1], *through_views(name)[:1]]) == []
        return
    assert wrong(one, sampled(plain(name), 2, quick=2)) == []
    assert odd_ones_wrong(one, name, sampled) == []
    assert wrong(one, sampled(through_views(name), 1, quick=1)) == []


@pytest.mark.requires_wgpu
@A_THIRD
def test_adapter_agrees_without_rewrites(name: str, sampled: Sampler) -> None:
    """The optimiser is not what makes the answer right; it is Python's, the same for
    all adapters.
    """
    one = engine(ADAPTERS["lavapipe"], optimise=False)
    assert wrong(one, sampled(small(through_views(name)), 1, quick=1)) == []


@pytest.mark.full("opengl", "swiftshader")
@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", [*filter(variants_of, NAMES)], scope="module")
def test_adapter_agrees_without_variants(
    name: str, adapter: Want, sampled: Sampler
) -> None:
    """An op's own kernel is right without its faster variants."""
    cases = sampled(plain(name), 2, quick=1)
    assert wrong(engine(adapter, variants=False), cases) == []


@pytest.mark.full("opengl", "swiftshader")
@pytest.mark.requires_wgpu
@EACH_OP
def test_no_kernel_writes_past_its_buffers(
    name: str, adapter: Want, sampled: Sampler
) -> None:
    """The smaller samples, plain and through views; those that `test_adapter_agrees`
    takes too, so that their shaders are there, or one that is small.
    """
    one = guarded(adapter)

    def runnable(cases: Iterable[Case]) -> list[Case]:
        accepts = one.backend.target.accepts
        return [case for case in small(cases) if case.dtypes <= accepts]

    views = sampled(through_views(name), 1, quick=1)
    ran = runnable([*sampled(plain(name), 2, quick=2), *views])
    ran = ran or runnable(plain(name))[:1]
    for case in ran:
        one.run(case.graph, case.feeds)
    assert one.backend.port.checked >= len(ran) > 0


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", NAMES)
def test_shrunk_adapter_agrees(name: str, sampled: Sampler) -> None:
    """Splitting, folding and merging under tiny limits change no answer. They are
    Python's, the same for all: they run on one adapter.
    """
    one = engine(ADAPTERS["lavapipe"], limits=shrunk())
    assert wrong(one, sampled(small(plain(name)), 1, quick=1)) == []


@pytest.mark.slow
@pytest.mark.requires_wgpu
@A_THIRD
def test_shrunk_adapter_agrees_on_views(name: str, sampled: Sampler) -> None:
    """Operands that are views are right under tiny limits as well."""
    one = engine(ADAPTERS["lavapipe"], limits=shrunk())
    assert wrong(one, sampled(small(through_views(name)), 1, quick=1)) == []


@pytest.mark.full
@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", NAMES)
def test_shrunk_adapter_agrees_on_thousands_of_parts(name: str) -> None:
    """Large samples, of thousands of parts under tiny limits, are right."""
    one = engine(ADAPTERS["lavapipe"], limits=shrunk())
    every = (*plain(name), *through_views(name))
    assert wrong(one, [case for case in every if not case.is_small]) == []


def among_others(backend: WebGpuBackend, array: Array) -> tuple[Resident, Resident]:
    """An array on the port with numbers before and behind it, and the whole of that."""
    kind = array.dtype.kind
    other = {"f": np.nan, "b": 1, "V": 0x7FC0}.get(kind)  # V: a NaN of bfloat16
    other = np.iinfo(array.dtype).max if other is None else other
    beside = np.full(128, other, array.dtype)
    whole = drive(backend.put(np.concatenate([beside, array.reshape(-1), beside])))
    return drive(backend.part(whole, 128, array.shape)), whole


def changed_by_lying_there(backend: WebGpuBackend, case: Case) -> str:
    """What differs when the inputs lie on the device; "" when nothing does."""
    program = drive(backend.prepare(compile_graph(case.graph, backend.target)))
    for param in case.graph.named("param"):
        drive(backend.set_param(program, param, case.feeds[param]))
    feeds = {n: np.asarray(case.feeds[n]) for n in case.graph.named("input")}
    want = [out.tobytes() for out in drive(backend.run(program, feeds))]
    there = {n: among_others(backend, array) for n, array in feeds.items()}
    before = [drive(backend.get(whole)).tobytes() for _, whole in there.values()]
    given = {n: part for n, (part, _) in there.items()}
    found = drive(backend.run_resident(program, given, [False] * len(want)))
    after = [drive(backend.get(whole)).tobytes() for _, whole in there.values()]
    copies, _ = program.bindings.over(
        {h: lying(given[n]) for n, h in program.inputs.items()}
    )
    drive(backend.release(program))
    if after != before:
        return f"{case.label}: an input was written"
    if copies:
        return f"{case.label}: {len(copies)} inputs were copied"
    return "" if [out.tobytes() for out in found] == want else f"{case.label}: outputs"


def lying(one: Resident) -> Lying:
    assert isinstance(one, BufferResident)
    return one.lying


@pytest.mark.requires_wgpu
@A_THIRD
def test_arrays_that_lie_there_are_only_read(
    name: str, monkeypatch: pytest.MonkeyPatch, sampled: Sampler
) -> None:
    """Arrays bound where they lie give the bits of copies, and are only read.

    What lies beside them in the same buffer is nothing to a kernel.
    """
    monkeypatch.setattr(webgpu_bindings, "WORTH_BINDING", 0)
    backend = engine(ADAPTERS["lavapipe"]).backend
    every = [c for c in small(plain(name)) if not c.dtypes - backend.target.accepts]
    cases = sampled(every, 1, quick=1)
    assert [said for c in cases if (said := changed_by_lying_there(backend, c))] == []


@pytest.mark.requires_wgpu
def test_float16_runs_where_the_adapter_has_it(adapter: Want) -> None:
    """An adapter lists f16 exactly when it has the feature; some sample asks for it."""
    backend = engine(adapter).backend
    has = "shader-f16" in backend.facts.features
    assert (DType.F16 in backend.target.accepts) is has
    assert any(DType.F16 in case.dtypes for name in NAMES for case in plain(name))


@pytest.mark.requires_wgpu
def test_an_adapter_lacks_what_the_table_says(adapter: Want) -> None:
    """An adapter lacks exactly what LACKS says: a driver that lost f16 fails here."""
    words = {word for name in ADAPTERS for word in LACKS.get(name, ())}
    (name,) = (name for name, want in ADAPTERS.items() if want is adapter)
    assert lacked(engine(adapter), words) == LACKS.get(name, set())


def test_some_ops_bring_values_together() -> None:
    assert {*ODD} > {"max", "softmax", "topk", "attention"}
