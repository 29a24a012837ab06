"""RLX's names for functions and classes that have another name in rlxweb."""

from rlxweb.cost.graph_traffic_counts import host_sync_op_kinds, profile_graph_io
from rlxweb.cost.rlx_welch_costs import (
    GateBreakdown,
    WelchPeaksCosts,
    host_fft_peaks_io_profile,
)
from rlxweb.cost.welch_strategy_names import WelchPeaksStrategy
from rlxweb.rlx.costs import io_cost_ns
from rlxweb.select.resolve import devices_for, fastest_device_for

WelchPeaksCostEstimates = WelchPeaksCosts
"""RLX's name of `WelchPeaksCosts`."""
WelchPeaksFusionGateBreakdown = GateBreakdown
"""RLX's name of `GateBreakdown`."""
WelchPeaksPickMode = WelchPeaksStrategy
"""RLX's name of `WelchPeaksStrategy`."""
ayala_io_cost_ns = io_cost_ns
"""RLX's name of `io_cost_ns`."""
devices_for_with_policy = devices_for
"""RLX's name of `devices_for`."""
fastest_device_for_with_policy = fastest_device_for
"""RLX's name of `fastest_device_for`."""
metal_host_sync_kinds = host_sync_op_kinds
"""RLX's name of `host_sync_op_kinds`."""
profile_graph_io_with_options = profile_graph_io
"""RLX's name of `profile_graph_io` with options."""
rustfft_peaks_io_profile = host_fft_peaks_io_profile
"""RLX's name of `host_fft_peaks_io_profile`."""
