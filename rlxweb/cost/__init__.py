"""HOW MUCH: cost models, IO profiles, fusion gates, and what they say of a graph.

Two modes share the names. "seed" is RLX's published arithmetic, digit for digit;
"calibrated" is what was measured on this machine. Nothing here measures or opens a
device; `fastest_device_for` and `.calibrated()` ask the rooms above.
"""

from rlxweb.cost.candidate import Candidate
from rlxweb.cost.estimate import (
    estimate_graph_cost,
    estimate_graph_cost_with_io,
    pick_best_device,
)
from rlxweb.cost.fusion_gate import (
    FusionBenefit,
    FusionTarget,
    IoFusionGate,
    fusion_benefit,
    io_fusion_gate_for_target,
    should_fuse_with_target,
)
from rlxweb.cost.io_profile import (
    GraphIoOptions,
    GraphIoProfile,
    host_sync_op_kinds,
    profile_graph_io,
    profile_graph_io_outputs,
)
from rlxweb.cost.model import (
    BackendCostModel,
    CpuCostModel,
    CudaCostModel,
    DiscreteGpuCostModel,
    MetalCostModel,
    MlxCostModel,
    RocmCostModel,
    WgpuCostModel,
)
from rlxweb.cost.terms import Terms
from rlxweb.cost.upward import fastest_device_for

__all__ = [
    "BackendCostModel",
    "Candidate",
    "CpuCostModel",
    "CudaCostModel",
    "DiscreteGpuCostModel",
    "FusionBenefit",
    "FusionTarget",
    "GraphIoOptions",
    "GraphIoProfile",
    "IoFusionGate",
    "MetalCostModel",
    "MlxCostModel",
    "RocmCostModel",
    "Terms",
    "WgpuCostModel",
    "estimate_graph_cost",
    "estimate_graph_cost_with_io",
    "fastest_device_for",
    "fusion_benefit",
    "host_sync_op_kinds",
    "io_fusion_gate_for_target",
    "pick_best_device",
    "profile_graph_io",
    "profile_graph_io_outputs",
    "should_fuse_with_target",
]
