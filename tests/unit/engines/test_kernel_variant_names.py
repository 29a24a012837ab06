"""Names of the kernel variants that run a step, in a plan and in a profile."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlxweb as rlx
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.engines.array import ArrayEngine, array_target
from rlxweb.engines.protocol import EngineIdentity, Program
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.dtype import DType
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node
from rlxweb.runtime.profile import profile_program
from rlxweb.select.device_and_adapter import CPU_PLACE

X = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)


def numpy_variant(op: str, name: str) -> KernelVariant:
    """Return a variant that calls the NumPy function of the op's name."""
    function: Any = getattr(np, op)
    return KernelVariant(name, op, for_every_node(lambda attrs, x: function(x)))


def prepare_region(*ops: str, variants: tuple[KernelVariant, ...]) -> Program:
    """Prepare one fused region of these ops on a NumPy engine with these variants."""
    engine = ArrayEngine(
        np,
        EngineIdentity("NumPy with variants"),
        array_target("NumPy with variants", frozenset(DType)),
        to_device=np.asarray,
        to_host=np.asarray,
        variants=variants,
    )
    graph = rlx.Graph("region")
    x: Any = graph.input("x", X.shape)
    for op in ops:
        x = getattr(graph, op)(x)
    graph.set_outputs([x])
    return run_blocking(engine.prepare(compile_graph(graph, engine.target)))


def test_a_step_names_the_variants_of_all_its_nodes() -> None:
    """Each variant is named once, in the order of the nodes, also where the first node
    has none.
    """
    sine, exponential = numpy_variant("sin", "fast sin"), numpy_variant("exp", "own")
    for ops, names in (
        (("cos", "sin", "exp"), " by 'fast sin', 'own'"),
        (("exp", "sin", "exp"), " by 'own', 'fast sin'"),
        (("cos", "neg"), ""),
    ):
        program = prepare_region(*ops, variants=(sine, exponential))
        (step,) = (
            line
            for line in program.plan.describe(program.kernel_variants).splitlines()
            if "= region" in line
        )
        assert step.partition(" @0")[2] == names


def test_a_profile_names_the_variants_that_ran() -> None:
    """The table, the JSON and the trace name the variants of each step."""
    program = prepare_region("cos", "sin", "exp", variants=(numpy_variant("sin", "a"),))
    profile = run_blocking(
        profile_program(program.engine, program, {"x": X}, CPU_PLACE, 2)
    )
    (step,) = profile.steps
    assert step.variants == ("a",)
    (row,) = (line for line in str(profile).splitlines() if step.label in line)
    assert row.startswith(f"{step.label} by 'a' ")
    assert [s["variants"] for s in profile.as_json()["steps"]] == [["a"]]
    (event,) = (e for e in profile.trace()["traceEvents"] if e["name"] == step.label)
    assert event["args"]["variants"] == ["a"]
