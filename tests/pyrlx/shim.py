"""Pyrlx's shape over rlxweb: whole numbers for nodes, labels for types and devices.

Thin on purpose: what rlxweb calls by pyrlx's names and in its order is passed on as it
is. `tests/pyrlx/shim_dsl.py` has its second half, `graph()` and `Node`. To run what was
written for pyrlx: `sys.modules["pyrlx"], sys.modules["pyrlx.dsl"] = shim, shim_dsl`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import rlxweb
from rlxweb import DevicePolicy as DevicePolicy
from rlxweb import available_devices as available_devices
from rlxweb import backends_manifest as backends_manifest
from rlxweb import is_available as is_available
from rlxweb import parse_device as parse_device
from rlxweb.errors import DeviceError
from rlxweb.ir.dtype import as_dtype

EXACT_FLOAT = 2**53
"""Pyrlx hands a constant over as a float64, which holds no larger whole numbers."""
_NORMS = {"none": "none", "backward": "none", "forward": "backward", "ortho": "ortho"}
_NORMS["orthonormal"] = "ortho"


class Graph:
    """A graph whose methods take and give the numbers of nodes."""

    def __init__(self, name: str) -> None:
        self.own = rlxweb.rlx.Graph(name)
        self.used_up = False

    def tensor(self, node: Any) -> Any:
        return self.own.tensor(int(node))

    def input(self, name: str, shape: Sequence[int], dtype: str = "f32") -> int:
        return self.own.input(name, shape, dtype).id

    def param(self, name: str, shape: Sequence[int], dtype: str = "f32") -> int:
        return self.own.param(name, shape, dtype).id

    def constant(self, value: float, dtype: str = "f32") -> int:
        if isinstance(value, int) and abs(value) > EXACT_FLOAT:
            raise ValueError(f"{value} exceeds the exact float range of 2**53")
        return self.own.constant(value, dtype).id

    def set_outputs(self, outputs: Sequence[Any]) -> None:
        self.own.set_outputs([self.tensor(o) for o in outputs])

    def shape_of(self, node: Any) -> tuple[list[int], str]:
        tensor = self.tensor(node)
        return list(tensor.shape), tensor.dtype.label

    def __len__(self) -> int:
        return len(self.own)

    def __repr__(self) -> str:
        return str(self.own)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A method of ours, by numbers in place of tensors."""
        method = getattr(self.own, name)
        parameters = inspect.signature(method)

        def call(*args: Any, **keywords: Any) -> Any:
            bound = parameters.bind(*args, **keywords)
            for key, value in bound.arguments.items():
                hint = str(parameters.parameters[key].annotation)
                if key == "norm" and name not in ("fft_norm", "fft_real"):
                    value = _NORMS[value]
                elif hint.startswith("Sequence[Tensor"):
                    value = [self.tensor(v) for v in value]
                elif hint.startswith(("Tensor", "Given")) and value is not None:
                    value = self.tensor(value)
                bound.arguments[key] = value
            return _numbers(method(*bound.args, **bound.kwargs))

        return call

    # --- where pyrlx's order or result is another -----------------------------------

    def fft(self, x: Any, inverse: bool = False) -> int:
        return self.own.fft_norm(self.tensor(x), inverse).id

    def fftfreq(self, n: int) -> int:
        return self.own.constant(_fftfreq(n), "f64").id

    def rfftfreq(self, n: int) -> int:
        return self.own.constant(np.fft.rfftfreq(n), "f64").id

    def psd_real(self, x: Any, norm: str = "backward") -> int:
        return self.own.psd(*self.own.rfft(self.tensor(x), _NORMS[norm])).id

    def rms_norm(self, x: Any, gamma: Any, beta: Any, eps: float = 1e-5) -> int:
        tensors = (self.tensor(t) for t in (x, gamma, beta))
        return self.own.rms_norm(*tensors, eps=eps).id

    def attention(
        self, q: Any, k: Any, v: Any, mask: Any, num_heads: int, head_dim: int
    ) -> int:
        tensors = (self.tensor(t) for t in (q, k, v, mask))
        heads = {"num_heads": num_heads, "head_dim": head_dim}
        return self.own.attention(*tensors, mask_kind="custom", **heads).id

    def fused_matmul_bias_act(
        self,
        x: Any,
        w: Any,
        bias: Any,
        out_shape: Sequence[int],
        dtype: str,
        activation: str | None = None,
    ) -> int:
        tensors = (self.tensor(t) for t in (x, w, bias))
        made = self.own.fused_matmul_bias_act(*tensors, activation)
        assert (list(made.shape), made.dtype.label) == (list(out_shape), dtype)
        return made.id

    def rope(self, x: Any, cos: Any, sin: Any, head_dim: int) -> int:
        tensors = (self.tensor(t) for t in (x, cos, sin))
        return self.own.rope(*tensors, head_dim=head_dim).id

    def where_(self, condition: Any, x: Any, y: Any) -> int:
        """Anything but 0 holds; a bool beside a number is 0 or 1."""
        c, a, b = (self.tensor(t) for t in (condition, x, y))
        c = c if c.dtype.label == "bool" else c.ne(0)
        a = a.cast(b.dtype) if a.dtype.label == "bool" else a
        b = b.cast(a.dtype) if b.dtype.label == "bool" else b
        return self.own.where(c, a, b).id


def _numbers(made: Any) -> Any:
    if isinstance(made, rlxweb.Tensor):
        return made.id
    return tuple(map(_numbers, made)) if isinstance(made, tuple) else made


def _fftfreq(n: int) -> np.ndarray[Any, Any]:
    """NumPy's, but +0.5 at bin n / 2."""
    freq = np.fft.fftfreq(n)
    freq[n // 2] = abs(freq[n // 2]) if n % 2 == 0 else freq[n // 2]
    return freq


class Session:
    """Compiling uses a graph up, and a device that is missing says how it comes in."""

    def __init__(self, device: str = "cpu", precision: str = "f32") -> None:
        try:
            self.own = rlxweb.Session(device, precision)
        except DeviceError as error:
            raise RuntimeError(f"{error} (build with --features {device})") from error

    @property
    def device(self) -> str | None:
        return self.own.device

    @property
    def precision(self) -> str:
        return self.own.precision

    def compile(self, graph: Graph) -> CompiledGraph:
        if graph.used_up:
            raise RuntimeError("the graph was compiled already")
        graph.used_up = True
        return CompiledGraph(self.own.compile(graph.own))

    def compile_with(
        self,
        graph: Graph,
        fusion_options: FusionOptions | None = None,
        kernel_dispatch: str | None = None,
    ) -> CompiledGraph:
        if fusion_options is not None and fusion_options.skip_fusion:
            self.own.optimise = False
        return self.compile(graph)

    def __repr__(self) -> str:
        return repr(self.own)


@dataclass
class FusionOptions:
    """What RLX's compiler may fuse; of these, only all or nothing is a choice here."""

    skip_fusion: bool = False
    unfuse_elementwise_regions: bool = False
    keep_elementwise_regions: bool = False
    decompose_fusion_regions: bool = False
    fk_fusion: bool = True
    fuse_region_prologue: bool = True
    fuse_batch_preprocess: bool = True
    native_fk_regions: bool = False

    @classmethod
    def native_fk(cls) -> FusionOptions:
        return cls(native_fk_regions=True)


class CompiledGraph:
    """Arrays by name in, arrays out; bytes for `run_typed`. An array may be flat."""

    def __init__(self, own: rlxweb.CompiledGraph) -> None:
        self.own = own
        self.set_param_typed = own.set_param_typed
        self.run_typed = own.run_typed
        self._inputs = own.graph.named("input")
        self._params = own.graph.named("param")

    @property
    def device(self) -> str:
        return self.own.device

    def set_param(self, name: str, data: Any) -> None:
        self.own.set_param(name, _shaped(self._params.get(name), data))

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Run on arrays of which only the length counts, as in pyrlx."""
        shaped = {n: _shaped(self._inputs.get(n), x) for n, x in inputs.items()}
        return self.own.run(shaped)

    def run_flat(self, inputs: Mapping[str, Any]) -> list[Any]:
        return [out.reshape(-1) for out in self.run(inputs)]


class GraphDevices(rlxweb.GraphDevices):
    """The list of devices is a call."""

    def __init__(self, graph: Graph, policy: DevicePolicy | None = None) -> None:
        super().__init__(graph.own, policy)

    def set_param(self, name: str, value: Any) -> None:
        node = self.graph.named("param").get(name)
        super().set_param(name, _shaped(node, value))

    def devices(self) -> list[str]:  # type: ignore[override]
        return list(self._supported)


class DeviceRouter(rlxweb.DeviceRouter):
    """Ours, of a graph of numbers."""

    def __init__(self, graph: Graph, policy: DevicePolicy | None = None) -> None:
        super().__init__(graph.own, policy)


class FlexibleSession(rlxweb.FlexibleSession):
    """Ours, for graphs of numbers."""

    def compile_resolved(  # type: ignore[override]
        self, graph: Graph, device: str | None = None
    ) -> CompiledGraph:
        return CompiledGraph(super().compile_resolved(graph.own, device))

    def compile_with_resolved(
        self,
        graph: Graph,
        device: str | None = None,
        fusion_options: FusionOptions | None = None,
        kernel_dispatch: str | None = None,
    ) -> CompiledGraph:
        return self.compile_resolved(graph, device)


def grad(graph: Graph, wrt: Sequence[int]) -> Graph:
    """The loss and its gradients, times an input `d_output`."""
    made, by = graph.own.copy(), list(wrt)
    (loss,) = (made.tensor(i) for i in made.outputs)
    seed = made.input("d_output", loss.shape, loss.dtype)
    grads = made.gradients([loss], [made.tensor(i) for i in by], [seed])
    made.set_outputs([loss, *grads])
    return _graph(made)


def jvp(graph: Graph, tangent_for: Sequence[int]) -> Graph:
    """The outputs and their tangents, along inputs `tangent_NAME`."""
    made = graph.own.copy()
    outputs = [made.tensor(i) for i in made.outputs]
    return _graph(_with_tangents(made, outputs, tangent_for))


def hvp(graph: Graph, wrt: Sequence[int]) -> Graph:
    """Outputs and gradients, then the tangents of both."""
    made, by = graph.own.copy(), list(wrt)
    outputs = [made.tensor(i) for i in made.outputs]
    grads = made.gradients(outputs, [made.tensor(i) for i in by])
    return _graph(_with_tangents(made, [*outputs, *grads], by))


def nth_order_grad(graph: Graph, wrt_name: str, order: int) -> Graph:
    return _graph(rlxweb.nth_order_grad(graph.own, wrt_name, order))


def directional_nth_grad(graph: Graph, wrt_name: str, order: int) -> Graph:
    return _graph(rlxweb.directional_nth_grad(graph.own, wrt_name, order))


def vmap(graph: Graph, batched_input_names: Sequence[str], batch_size: int) -> Graph:
    return _graph(rlxweb.vmap(graph.own, count=batch_size, inputs=batched_input_names))


def _with_tangents(
    made: rlxweb.Graph, outputs: Sequence[rlxweb.Tensor], wrt: Sequence[int]
) -> rlxweb.Graph:
    by = [made.tensor(i) for i in wrt]
    along = [
        made.input(f"tangent_{made.node(x.id).name}", x.shape, x.dtype) for x in by
    ]
    made.set_outputs([*outputs, *made.tangents(outputs, by, along)])
    return made


def _graph(own: rlxweb.Graph) -> Graph:
    made = Graph(own.name)
    made.own = own
    return made


def batch_narrow_relu_graph(
    name: str, batch: int, channels: int, height: int, width: int, dtype: str = "f32"
) -> Graph:
    """A graph that cuts out each picture of a batch, and joins their relu again."""
    g = Graph(name)
    x = g.input("batch", [batch, channels, height, width], dtype)
    each = [g.relu(g.narrow(x, 0, at, 1)) for at in range(batch)]
    g.set_outputs([g.concat(each, 0)])
    return g


def fastest_device_for(graph: Graph, policy: DevicePolicy | None = None) -> str:
    return rlxweb.fastest_device_for(graph.own, policy)


def device_report(graph: Graph, policy: DevicePolicy | None = None) -> Any:
    return rlxweb.device_report(graph.own, policy)


def dtype_str(dtype: Any) -> str:
    return as_dtype(dtype).label


def numpy_dtype(name: str) -> np.dtype[Any]:
    return as_dtype(name).numpy


def set_param(compiled: CompiledGraph, name: str, value: Any) -> None:
    compiled.set_param(name, value)


def _shaped(node: Any, data: Any) -> Any:
    array = np.asarray(data)
    fits = node is not None and array.size == node.type.numel
    return array.reshape(node.type.shape) if fits and node else array


def run(compiled: CompiledGraph, **inputs: Any) -> list[Any]:
    return compiled.run(inputs)


from tests.pyrlx.shim_dsl import Node as Node  # noqa: E402  (the halves know each other)
from tests.pyrlx.shim_dsl import graph as graph  # noqa: E402
