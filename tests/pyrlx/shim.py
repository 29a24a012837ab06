"""The pyrlx API on top of rlxweb: integers for nodes, labels for dtypes and devices.

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
from rlxweb.core.errors import DeviceError
from rlxweb.ir.dtype import as_dtype

MAX_EXACT_INTEGER = 2**53
"""Largest integer that pyrlx can pass as a constant, since it does so as float64."""
_NORMS = {"none": "none", "backward": "none", "forward": "backward", "ortho": "ortho"}
_NORMS["orthonormal"] = "ortho"


class Graph:
    """Graph whose methods take and return node numbers."""

    def __init__(self, name: str) -> None:
        self.inner = rlxweb.rlx.Graph(name)
        self.is_compiled = False

    def tensor(self, node: Any) -> Any:
        return self.inner.tensor(int(node))

    def input(self, name: str, shape: Sequence[int], dtype: str = "f32") -> int:
        return self.inner.input(name, shape, dtype).id

    def param(self, name: str, shape: Sequence[int], dtype: str = "f32") -> int:
        return self.inner.param(name, shape, dtype).id

    def constant(self, value: float, dtype: str = "f32") -> int:
        if isinstance(value, int) and abs(value) > MAX_EXACT_INTEGER:
            raise ValueError(f"{value} exceeds the exact float range of 2**53")
        return self.inner.constant(value, dtype).id

    def set_outputs(self, outputs: Sequence[Any]) -> None:
        self.inner.set_outputs([self.tensor(o) for o in outputs])

    def shape_of(self, node: Any) -> tuple[list[int], str]:
        tensor = self.tensor(node)
        return list(tensor.shape), tensor.dtype.label

    def __len__(self) -> int:
        return len(self.inner)

    def __repr__(self) -> str:
        return str(self.inner)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a method of rlxweb's graph that takes node numbers in place of
        tensors.
        """
        method = getattr(self.inner, name)
        signature = inspect.signature(method)

        def call(*args: Any, **keywords: Any) -> Any:
            bound = signature.bind(*args, **keywords)
            for key, value in bound.arguments.items():
                hint = str(signature.parameters[key].annotation)
                if key == "norm" and name not in ("fft_norm", "fft_real"):
                    value = _NORMS[value]
                elif hint.startswith("Sequence[Tensor"):
                    value = [self.tensor(v) for v in value]
                elif hint.startswith(("Tensor", "Given")) and value is not None:
                    value = self.tensor(value)
                bound.arguments[key] = value
            return _node_numbers(method(*bound.args, **bound.kwargs))

        return call

    # --- where pyrlx's order or result is another -----------------------------------

    def fft(self, x: Any, inverse: bool = False) -> int:
        return self.inner.fft_norm(self.tensor(x), inverse).id

    def fftfreq(self, n: int) -> int:
        return self.inner.constant(_fftfreq(n), "f64").id

    def rfftfreq(self, n: int) -> int:
        return self.inner.constant(np.fft.rfftfreq(n), "f64").id

    def psd_real(self, x: Any, norm: str = "backward") -> int:
        return self.inner.psd(*self.inner.rfft(self.tensor(x), _NORMS[norm])).id

    def rms_norm(self, x: Any, gamma: Any, beta: Any, eps: float = 1e-5) -> int:
        tensors = (self.tensor(t) for t in (x, gamma, beta))
        return self.inner.rms_norm(*tensors, eps=eps).id

    def attention(
        self, q: Any, k: Any, v: Any, mask: Any, num_heads: int, head_dim: int
    ) -> int:
        tensors = (self.tensor(t) for t in (q, k, v, mask))
        heads = {"num_heads": num_heads, "head_dim": head_dim}
        return self.inner.attention(*tensors, mask_kind="custom", **heads).id

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
        result = self.inner.fused_matmul_bias_act(*tensors, activation)
        assert (list(result.shape), result.dtype.label) == (list(out_shape), dtype)
        return result.id

    def rope(self, x: Any, cos: Any, sin: Any, head_dim: int) -> int:
        tensors = (self.tensor(t) for t in (x, cos, sin))
        return self.inner.rope(*tensors, head_dim=head_dim).id

    def where_(self, condition: Any, x: Any, y: Any) -> int:
        """Select x where the condition is not 0; a bool operand next to a number counts
        as 0 or 1.
        """
        c, a, b = (self.tensor(t) for t in (condition, x, y))
        c = c if c.dtype.label == "bool" else c.ne(0)
        a = a.cast(b.dtype) if a.dtype.label == "bool" else a
        b = b.cast(a.dtype) if b.dtype.label == "bool" else b
        return self.inner.where(c, a, b).id


def _node_numbers(result: Any) -> Any:
    if isinstance(result, rlxweb.Tensor):
        return result.id
    return tuple(map(_node_numbers, result)) if isinstance(result, tuple) else result


def _fftfreq(n: int) -> np.ndarray[Any, Any]:
    """Return NumPy's `fftfreq`, but with +0.5 at bin n / 2."""
    freq = np.fft.fftfreq(n)
    freq[n // 2] = abs(freq[n // 2]) if n % 2 == 0 else freq[n // 2]
    return freq


class Session:
    """Session whose graphs compile once and whose errors name the feature of a missing
    device.
    """

    def __init__(self, device: str = "cpu", precision: str = "f32") -> None:
        try:
            self.inner = rlxweb.Session(device, precision)
        except DeviceError as error:
            raise RuntimeError(f"{error} (build with --features {device})") from error

    @property
    def device(self) -> str | None:
        return self.inner.device

    @property
    def precision(self) -> str:
        return self.inner.precision

    def compile(self, graph: Graph) -> CompiledGraph:
        if graph.is_compiled:
            raise RuntimeError("the graph was compiled already")
        graph.is_compiled = True
        return CompiledGraph(self.inner.compile(graph.inner))

    def compile_with(
        self,
        graph: Graph,
        fusion_options: FusionOptions | None = None,
        kernel_dispatch: str | None = None,
    ) -> CompiledGraph:
        if fusion_options is not None and fusion_options.skip_fusion:
            self.inner.optimise = False
        return self.compile(graph)

    def __repr__(self) -> str:
        return repr(self.inner)


@dataclass
class FusionOptions:
    """Options of RLX's fusion; only `skip_fusion` has an effect here."""

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
    """Compiled graph with arrays by name as inputs and bytes for `run_typed`; arrays
    may be flat.
    """

    def __init__(self, inner: rlxweb.CompiledGraph) -> None:
        self.inner = inner
        self.set_param_typed = inner.set_param_typed
        self.run_typed = inner.run_typed
        self._inputs = inner.graph.named("input")
        self._params = inner.graph.named("param")

    @property
    def device(self) -> str:
        return self.inner.device

    def set_param(self, name: str, data: Any) -> None:
        self.inner.set_param(name, _fit_to_node(self._params.get(name), data))

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Run on arrays whose length alone matters, as in pyrlx."""
        arrays = {n: _fit_to_node(self._inputs.get(n), x) for n, x in inputs.items()}
        return self.inner.run(arrays)

    def run_flat(self, inputs: Mapping[str, Any]) -> list[Any]:
        return [out.reshape(-1) for out in self.run(inputs)]


class GraphDevices(rlxweb.GraphDevices):
    """Runner whose `devices` is a method, as in pyrlx."""

    def __init__(self, graph: Graph, policy: DevicePolicy | None = None) -> None:
        super().__init__(graph.inner, policy)

    def set_param(self, name: str, value: Any) -> None:
        node = self.graph.named("param").get(name)
        super().set_param(name, _fit_to_node(node, value))

    def devices(self) -> list[str]:  # type: ignore[override]
        return list(self._supported)


class DeviceRouter(rlxweb.DeviceRouter):
    """Router for a graph of node numbers."""

    def __init__(self, graph: Graph, policy: DevicePolicy | None = None) -> None:
        super().__init__(graph.inner, policy)


class FlexibleSession(rlxweb.FlexibleSession):
    """Flexible session for graphs of node numbers."""

    def compile_resolved(  # type: ignore[override]
        self, graph: Graph, device: str | None = None
    ) -> CompiledGraph:
        return CompiledGraph(super().compile_resolved(graph.inner, device))

    def compile_with_resolved(
        self,
        graph: Graph,
        device: str | None = None,
        fusion_options: FusionOptions | None = None,
        kernel_dispatch: str | None = None,
    ) -> CompiledGraph:
        return self.compile_resolved(graph, device)


def grad(graph: Graph, wrt: Sequence[int]) -> Graph:
    """Return the graph of the loss and its gradients, scaled by an input `d_output`."""
    derived, variables = graph.inner.copy(), list(wrt)
    (loss,) = (derived.tensor(i) for i in derived.outputs)
    seed = derived.input("d_output", loss.shape, loss.dtype)
    grads = derived.gradients([loss], [derived.tensor(i) for i in variables], [seed])
    derived.set_outputs([loss, *grads])
    return _wrap_graph(derived)


def jvp(graph: Graph, tangent_for: Sequence[int]) -> Graph:
    """Return the graph of the outputs and their tangents, with inputs
    `tangent_NAME`.
    """
    derived = graph.inner.copy()
    outputs = [derived.tensor(i) for i in derived.outputs]
    return _wrap_graph(_with_tangents(derived, outputs, tangent_for))


def hvp(graph: Graph, wrt: Sequence[int]) -> Graph:
    """Return the graph of outputs and gradients, followed by the tangents of both."""
    derived, variables = graph.inner.copy(), list(wrt)
    outputs = [derived.tensor(i) for i in derived.outputs]
    grads = derived.gradients(outputs, [derived.tensor(i) for i in variables])
    return _wrap_graph(_with_tangents(derived, [*outputs, *grads], variables))


def nth_order_grad(graph: Graph, wrt_name: str, order: int) -> Graph:
    return _wrap_graph(rlxweb.nth_order_grad(graph.inner, wrt_name, order))


def directional_nth_grad(graph: Graph, wrt_name: str, order: int) -> Graph:
    return _wrap_graph(rlxweb.directional_nth_grad(graph.inner, wrt_name, order))


def vmap(graph: Graph, batched_input_names: Sequence[str], batch_size: int) -> Graph:
    return _wrap_graph(
        rlxweb.vmap(graph.inner, count=batch_size, inputs=batched_input_names)
    )


def _with_tangents(
    derived: rlxweb.Graph, outputs: Sequence[rlxweb.Tensor], wrt: Sequence[int]
) -> rlxweb.Graph:
    variables = [derived.tensor(i) for i in wrt]
    tangent_inputs = [
        derived.input(f"tangent_{derived.node(x.id).name}", x.shape, x.dtype)
        for x in variables
    ]
    derived.set_outputs(
        [*outputs, *derived.tangents(outputs, variables, tangent_inputs)]
    )
    return derived


def _wrap_graph(inner: rlxweb.Graph) -> Graph:
    wrapper = Graph(inner.name)
    wrapper.inner = inner
    return wrapper


def batch_narrow_relu_graph(
    name: str, batch: int, channels: int, height: int, width: int, dtype: str = "f32"
) -> Graph:
    """Return a graph that applies relu to each image of a batch separately and
    concatenates them.
    """
    g = Graph(name)
    x = g.input("batch", [batch, channels, height, width], dtype)
    images = [g.relu(g.narrow(x, 0, at, 1)) for at in range(batch)]
    g.set_outputs([g.concat(images, 0)])
    return g


def fastest_device_for(graph: Graph, policy: DevicePolicy | None = None) -> str:
    return rlxweb.fastest_device_for(graph.inner, policy)


def device_report(graph: Graph, policy: DevicePolicy | None = None) -> Any:
    return rlxweb.device_report(graph.inner, policy)


def dtype_str(dtype: Any) -> str:
    return as_dtype(dtype).label


def numpy_dtype(name: str) -> np.dtype[Any]:
    return as_dtype(name).numpy


def set_param(compiled: CompiledGraph, name: str, value: Any) -> None:
    compiled.set_param(name, value)


def _fit_to_node(node: Any, data: Any) -> Any:
    array = np.asarray(data)
    same_size = node is not None and array.size == node.type.numel
    return array.reshape(node.type.shape) if same_size and node else array


def run(compiled: CompiledGraph, **inputs: Any) -> list[Any]:
    return compiled.run(inputs)


from tests.pyrlx.shim_dsl import Node as Node  # noqa: E402  (the halves know each other)
from tests.pyrlx.shim_dsl import graph as graph  # noqa: E402
