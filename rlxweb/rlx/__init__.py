"""RLX's names and formulas, exact to the last digit; nothing else in rlxweb imports
them.

`Graph` has RLX's method names; the cost functions are RLX's published arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlxweb.core.lazy_names import load_published, publish_names, published_names

if TYPE_CHECKING:
    from rlxweb.cost.rlx_welch_costs import GateBreakdown as GateBreakdown
    from rlxweb.cost.rlx_welch_costs import WelchPeaksCosts as WelchPeaksCosts
    from rlxweb.cost.rlx_welch_costs import (
        host_fft_peaks_io_profile as host_fft_peaks_io_profile,
    )
    from rlxweb.cost.rlx_welch_presets import DEFAULT_PEAK_K as DEFAULT_PEAK_K
    from rlxweb.cost.rlx_welch_presets import WelchPeakParams as WelchPeakParams
    from rlxweb.cost.welch_strategy_names import (
        WelchPeaksStrategy as WelchPeaksStrategy,
    )
    from rlxweb.cost.welch_strategy_names import (
        parse_welch_peaks_strategy as parse_welch_peaks_strategy,
    )
    from rlxweb.rlx.aliases import WelchPeaksCostEstimates as WelchPeaksCostEstimates
    from rlxweb.rlx.aliases import (
        WelchPeaksFusionGateBreakdown as WelchPeaksFusionGateBreakdown,
    )
    from rlxweb.rlx.aliases import WelchPeaksPickMode as WelchPeaksPickMode
    from rlxweb.rlx.aliases import ayala_io_cost_ns as ayala_io_cost_ns
    from rlxweb.rlx.aliases import devices_for_with_policy as devices_for_with_policy
    from rlxweb.rlx.aliases import (
        fastest_device_for_with_policy as fastest_device_for_with_policy,
    )
    from rlxweb.rlx.aliases import metal_host_sync_kinds as metal_host_sync_kinds
    from rlxweb.rlx.aliases import (
        profile_graph_io_with_options as profile_graph_io_with_options,
    )
    from rlxweb.rlx.aliases import rustfft_peaks_io_profile as rustfft_peaks_io_profile
    from rlxweb.rlx.costs import Mode as Mode
    from rlxweb.rlx.costs import WelchPeaksPickBreakdown as WelchPeaksPickBreakdown
    from rlxweb.rlx.costs import algorithm_bandwidth_gbps as algorithm_bandwidth_gbps
    from rlxweb.rlx.costs import (
        all_welch_peaks_strategy_names as all_welch_peaks_strategy_names,
    )
    from rlxweb.rlx.costs import (
        build_welch_peaks_fused_graph as build_welch_peaks_fused_graph,
    )
    from rlxweb.rlx.costs import estimate_block_welch_ns as estimate_block_welch_ns
    from rlxweb.rlx.costs import estimate_fused_graph_ns as estimate_fused_graph_ns
    from rlxweb.rlx.costs import (
        estimate_welch_peaks_costs as estimate_welch_peaks_costs,
    )
    from rlxweb.rlx.costs import fft_only_graph as fft_only_graph
    from rlxweb.rlx.costs import (
        fused_io_compute_scale_for_calibration as fused_io_compute_scale_for_calibration,  # noqa: E501
    )
    from rlxweb.rlx.costs import (
        fused_welch_peaks_auto_viable as fused_welch_peaks_auto_viable,
    )
    from rlxweb.rlx.costs import io_cost_ns as io_cost_ns
    from rlxweb.rlx.costs import (
        pick_welch_peaks_breakdown as pick_welch_peaks_breakdown,
    )
    from rlxweb.rlx.costs import pick_welch_peaks_strategy as pick_welch_peaks_strategy
    from rlxweb.rlx.costs import (
        resolve_welch_peaks_strategy as resolve_welch_peaks_strategy,
    )
    from rlxweb.rlx.costs import useful_bytes_touched as useful_bytes_touched
    from rlxweb.rlx.costs import (
        welch_peaks_fusion_compute_floor_ok as welch_peaks_fusion_compute_floor_ok,
    )
    from rlxweb.rlx.costs import (
        welch_peaks_fusion_gate_breakdown as welch_peaks_fusion_gate_breakdown,
    )
    from rlxweb.rlx.costs import (
        welch_peaks_fusion_io_profiles as welch_peaks_fusion_io_profiles,
    )
    from rlxweb.rlx.costs import welch_peaks_fusion_target as welch_peaks_fusion_target
    from rlxweb.rlx.costs import (
        welch_peaks_io_fusion_gate as welch_peaks_io_fusion_gate,
    )
    from rlxweb.rlx.graph import Graph as Graph
    from rlxweb.runtime.peaks_only_outputs import (
        select_peaks_only_outputs as select_peaks_only_outputs,
    )

_HOMES = {
    "rlxweb.cost.rlx_welch_costs": (
        "GateBreakdown WelchPeaksCosts host_fft_peaks_io_profile"
    ),
    "rlxweb.cost.rlx_welch_presets": "DEFAULT_PEAK_K WelchPeakParams",
    "rlxweb.cost.welch_strategy_names": (
        "WelchPeaksStrategy parse_welch_peaks_strategy"
    ),
    "rlxweb.rlx.aliases": (
        "WelchPeaksCostEstimates WelchPeaksFusionGateBreakdown WelchPeaksPickMode "
        "ayala_io_cost_ns devices_for_with_policy fastest_device_for_with_policy "
        "metal_host_sync_kinds profile_graph_io_with_options rustfft_peaks_io_profile"
    ),
    "rlxweb.rlx.costs": (
        "Mode WelchPeaksPickBreakdown algorithm_bandwidth_gbps "
        "all_welch_peaks_strategy_names build_welch_peaks_fused_graph "
        "estimate_block_welch_ns estimate_fused_graph_ns "
        "estimate_welch_peaks_costs fft_only_graph "
        "fused_io_compute_scale_for_calibration fused_welch_peaks_auto_viable "
        "io_cost_ns pick_welch_peaks_breakdown pick_welch_peaks_strategy "
        "resolve_welch_peaks_strategy useful_bytes_touched "
        "welch_peaks_fusion_compute_floor_ok welch_peaks_fusion_gate_breakdown "
        "welch_peaks_fusion_io_profiles welch_peaks_fusion_target "
        "welch_peaks_io_fusion_gate"
    ),
    "rlxweb.rlx.graph": "Graph",
    "rlxweb.runtime.peaks_only_outputs": "select_peaks_only_outputs",
}
publish_names(__name__, _HOMES)
__all__ = published_names(__name__)


def __getattr__(name: str) -> Any:
    return load_published(__name__, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
