"""Which device a graph runs on when the caller leaves it open.

The rule of this release is small and says so: NumPy unless there is a GPU of its own
hardware and the work is large enough to pay for the way there and back. Software
adapters run on the same cores as NumPy and are taken only when asked for. The cost
models of `rlxweb.cost` will decide this from measurements.
"""

from __future__ import annotations

from typing import Any

from rlxweb.backends.pool import pool
from rlxweb.compile.plan import Decision
from rlxweb.devices.device import Device
from rlxweb.errors import DeviceError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry

# A submit and a read-back cost some 100 us on a desktop GPU; NumPy does about this
# much arithmetic in that time.
WORTH_A_TRIP_FLOPS = 5e6


def graph_flops(graph: Graph) -> float:
    """Arithmetic operations of one run, by the ops' own counts."""
    total = 0.0
    for node in graph.nodes():
        op = registry.get(node.op)
        if not op.has("leaf") and not op.has("view"):
            inputs = tuple(graph.node(i).type for i in node.inputs)
            total += op.flops(inputs, node.type, node.attrs)
    return total


def gpu_worth_it(flops: float, adapter: str = "") -> tuple[Any, str]:
    """(the open GPU backend, or None to stay on the CPU; why).

    An adapter asked for by name is taken whatever the work.
    """
    if flops < WORTH_A_TRIP_FLOPS and not adapter:
        return None, "the work is too small to pay for a trip to a GPU"
    try:
        backend = pool.backend("gpu", adapter)
    except DeviceError as error:
        return None, f"no GPU adapter could be opened: {error.problem}"
    if adapter:
        return backend, "its adapter was asked for by name"
    if backend.facts.software:
        return None, (
            f"the only adapter, {backend.name}, is software on the same cores; ask for "
            "it by name to use it"
        )
    return backend, "a hardware GPU and enough work for it"


def choose_device(graph: Graph, adapter: str = "") -> tuple[Device, Decision]:
    """The device for a graph and the decision that says why."""
    flops = graph_flops(graph)
    numbers = {"flops": flops, "worth_a_trip_flops": WORTH_A_TRIP_FLOPS}

    def cpu(why: str) -> tuple[Device, Decision]:
        return Device.CPU, Decision("device CPU", why, numbers)

    wide = {n.type.dtype for n in graph.nodes()} & {DType.F64, DType.I64}
    if wide:
        names = ", ".join(sorted(d.value for d in wide))
        return cpu(f"the graph holds {names}, which no GPU shader has")
    gpu, why = gpu_worth_it(flops, adapter)
    if gpu is None:
        return cpu(why)
    return Device.GPU, Decision(f"device {gpu.name}", why, numbers)
