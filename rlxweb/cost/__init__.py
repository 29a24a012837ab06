"""Cost models, IO profiles and fusion gates, and the costs they predict for a graph.

Two modes share the names. "seed" is RLX's published arithmetic, digit for digit;
"calibrated" is what was measured on this machine. Nothing here measures or opens a
device: `fastest_device_for` and `.calibrated()` are answered by the rooms above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlxweb.core.lazy_names import load_published, publish_names, published_names

if TYPE_CHECKING:
    from rlxweb.core.device import fastest_among as fastest_among
    from rlxweb.cost.decision import Candidate as Candidate
    from rlxweb.cost.decision import Terms as Terms
    from rlxweb.cost.device_models import BackendCostModel as BackendCostModel
    from rlxweb.cost.device_models import CpuCostModel as CpuCostModel
    from rlxweb.cost.device_models import CudaCostModel as CudaCostModel
    from rlxweb.cost.device_models import DiscreteGpuCostModel as DiscreteGpuCostModel
    from rlxweb.cost.device_models import MetalCostModel as MetalCostModel
    from rlxweb.cost.device_models import MlxCostModel as MlxCostModel
    from rlxweb.cost.device_models import RocmCostModel as RocmCostModel
    from rlxweb.cost.device_models import WgpuCostModel as WgpuCostModel
    from rlxweb.cost.fusion_gate import FusionBenefit as FusionBenefit
    from rlxweb.cost.fusion_gate import FusionTarget as FusionTarget
    from rlxweb.cost.fusion_gate import IoFusionGate as IoFusionGate
    from rlxweb.cost.fusion_gate import fusion_benefit as fusion_benefit
    from rlxweb.cost.fusion_gate import (
        io_fusion_gate_for_target as io_fusion_gate_for_target,
    )
    from rlxweb.cost.fusion_gate import (
        should_fuse_with_target as should_fuse_with_target,
    )
    from rlxweb.cost.graph_time_estimate import (
        estimate_graph_cost as estimate_graph_cost,
    )
    from rlxweb.cost.graph_time_estimate import (
        estimate_graph_cost_with_io as estimate_graph_cost_with_io,
    )
    from rlxweb.cost.graph_time_estimate import fastest_device_for as fastest_device_for
    from rlxweb.cost.graph_time_estimate import pick_best_device as pick_best_device
    from rlxweb.cost.graph_traffic_counts import GraphIoOptions as GraphIoOptions
    from rlxweb.cost.graph_traffic_counts import GraphIoProfile as GraphIoProfile
    from rlxweb.cost.graph_traffic_counts import (
        host_sync_op_kinds as host_sync_op_kinds,
    )
    from rlxweb.cost.graph_traffic_counts import profile_graph_io as profile_graph_io
    from rlxweb.cost.graph_traffic_counts import (
        profile_graph_io_outputs as profile_graph_io_outputs,
    )

_HOMES = {
    "rlxweb.cost.graph_time_estimate": (
        "estimate_graph_cost estimate_graph_cost_with_io fastest_device_for "
        "pick_best_device"
    ),
    "rlxweb.cost.fusion_gate": (
        "FusionBenefit FusionTarget IoFusionGate fusion_benefit "
        "io_fusion_gate_for_target should_fuse_with_target"
    ),
    "rlxweb.cost.graph_traffic_counts": (
        "GraphIoOptions GraphIoProfile host_sync_op_kinds profile_graph_io "
        "profile_graph_io_outputs"
    ),
    "rlxweb.cost.device_models": (
        "BackendCostModel CpuCostModel CudaCostModel DiscreteGpuCostModel "
        "MetalCostModel MlxCostModel RocmCostModel WgpuCostModel"
    ),
    "rlxweb.cost.decision": "Candidate Terms",
    "rlxweb.core.device": "fastest_among",
}
publish_names(__name__, _HOMES)
__all__ = published_names(__name__)


def __getattr__(name: str) -> Any:
    return load_published(__name__, name)
