"""Graphs of tensor and signal operations, run on the fastest available engine.

The public names and where they live, nothing else. A name is loaded when it is first
used, so importing this costs next to nothing and loads no GPU library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rlxweb.core.lazy_names import (
    load_published,
    publish_names,
    published_names,
    register_providers,
)

if TYPE_CHECKING:  # for editors and type checkers; tested to be _PUBLIC_NAMES
    from rlxweb.core.adc_samples import Digital as Digital
    from rlxweb.core.device import Device as Device
    from rlxweb.core.device import parse_device as parse_device
    from rlxweb.core.device import parse_device_list as parse_device_list
    from rlxweb.core.errors import RlxError as RlxError
    from rlxweb.core.quantized_weights import Quantized as Quantized
    from rlxweb.core.quantized_weights import dequantize as dequantize
    from rlxweb.core.quantized_weights import quantize as quantize
    from rlxweb.io.recording_reader import read as read
    from rlxweb.ir.dtype import DType as DType
    from rlxweb.ir.graph import Graph as Graph
    from rlxweb.ir.symbolic_dim import Dim as Dim
    from rlxweb.ir.tensor import Tensor as Tensor
    from rlxweb.ir.weight_quantization import quantize_weights as quantize_weights
    from rlxweb.ops.custom_op_registration import register_custom as register_custom
    from rlxweb.runtime.auto_device_session import FlexibleSession as FlexibleSession
    from rlxweb.runtime.compiled_graph import CompiledGraph as CompiledGraph
    from rlxweb.runtime.device_array import DeviceArray as DeviceArray
    from rlxweb.runtime.device_array import put as put
    from rlxweb.runtime.device_array import put_async as put_async
    from rlxweb.runtime.device_benchmark import DeviceBenchResult as DeviceBenchResult
    from rlxweb.runtime.graph_devices import GraphDevices as GraphDevices
    from rlxweb.runtime.graph_files.safetensors_weights import (
        load_weights as load_weights,
    )
    from rlxweb.runtime.loaded_graph import LoadedGraph as LoadedGraph
    from rlxweb.runtime.loaded_graph import load as load
    from rlxweb.runtime.profile import Profile as Profile
    from rlxweb.runtime.session import Session as Session
    from rlxweb.runtime.throttle_aware_router import DeviceRouter as DeviceRouter
    from rlxweb.select.availability import DeviceCandidate as DeviceCandidate
    from rlxweb.select.availability import available_devices as available_devices
    from rlxweb.select.availability import backends_manifest as backends_manifest
    from rlxweb.select.availability import is_available as is_available
    from rlxweb.select.availability import open_async as open_async
    from rlxweb.select.device_report import device_report as device_report
    from rlxweb.select.policy import DevicePolicy as DevicePolicy
    from rlxweb.select.resolve import fastest_device_for as fastest_device_for
    from rlxweb.signal.aperiodic import aperiodic as aperiodic
    from rlxweb.signal.aperiodic_result import AperiodicFit as AperiodicFit
    from rlxweb.signal.band_power import BandPower as BandPower
    from rlxweb.signal.band_power import band_power as band_power
    from rlxweb.signal.band_power import band_power_of as band_power_of
    from rlxweb.signal.cross_spectra import coherence as coherence
    from rlxweb.signal.cross_spectra import coherence_async as coherence_async
    from rlxweb.signal.cross_spectra import csd as csd
    from rlxweb.signal.cross_spectra import csd_async as csd_async
    from rlxweb.signal.istft import istft as istft
    from rlxweb.signal.istft import istft_async as istft_async
    from rlxweb.signal.learned.learn import Learned as Learned
    from rlxweb.signal.learned.learn import learn_welch as learn_welch
    from rlxweb.signal.learned.transform import LearnedTransform as LearnedTransform
    from rlxweb.signal.learned.transform_file import load_learned as load_learned
    from rlxweb.signal.morlet import tfr_morlet as tfr_morlet
    from rlxweb.signal.morlet import tfr_morlet_async as tfr_morlet_async
    from rlxweb.signal.multitaper import multitaper as multitaper
    from rlxweb.signal.multitaper import multitaper_async as multitaper_async
    from rlxweb.signal.spectrogram import spectrogram as spectrogram
    from rlxweb.signal.spectrogram import spectrogram_async as spectrogram_async
    from rlxweb.signal.spectrum_result import Spectrum as Spectrum
    from rlxweb.signal.stft import stft as stft
    from rlxweb.signal.stft import stft_async as stft_async
    from rlxweb.signal.stream_frame import StreamFrame as StreamFrame
    from rlxweb.signal.time_frequency_result import TimeFrequency as TimeFrequency
    from rlxweb.signal.welch import welch as welch
    from rlxweb.signal.welch import welch_async as welch_async
    from rlxweb.signal.welch_export import export_welch as export_welch
    from rlxweb.signal.welch_peaks import welch_peaks as welch_peaks
    from rlxweb.signal.welch_peaks import welch_peaks_async as welch_peaks_async
    from rlxweb.signal.welch_peaks_result import WelchPeaks as WelchPeaks
    from rlxweb.signal.welch_stream import WelchStream as WelchStream
    from rlxweb.trace.derivatives import grad as grad
    from rlxweb.trace.derivatives import jvp as jvp
    from rlxweb.trace.derivatives import value_and_grad as value_and_grad
    from rlxweb.trace.function import Function as Function
    from rlxweb.trace.function import function as function
    from rlxweb.trace.gradient_checkpointing import checkpoint as checkpoint
    from rlxweb.trace.graph_grad_and_vmap import (
        directional_nth_grad as directional_nth_grad,
    )
    from rlxweb.trace.graph_grad_and_vmap import nth_order_grad as nth_order_grad
    from rlxweb.trace.jacobians import hvp as hvp
    from rlxweb.trace.jacobians import jacfwd as jacfwd
    from rlxweb.trace.jacobians import jacrev as jacrev
    from rlxweb.trace.nn_namespace import nn as nn
    from rlxweb.trace.training.lbfgs import Minimum as Minimum
    from rlxweb.trace.training.lbfgs import lbfgs as lbfgs
    from rlxweb.trace.training.loop import Patience as Patience
    from rlxweb.trace.training.loop import Trained as Trained
    from rlxweb.trace.training.loop import train as train
    from rlxweb.trace.training.optimizers import SGD as SGD
    from rlxweb.trace.training.optimizers import Adam as Adam
    from rlxweb.trace.training.optimizers import AdamW as AdamW
    from rlxweb.trace.vmap import vmap as vmap

_PUBLIC_NAMES = {
    "rlxweb.select.resolve": "fastest_device_for",
    "rlxweb.core.device": "Device parse_device parse_device_list",
    "rlxweb.select.availability": (
        "DeviceCandidate available_devices backends_manifest is_available open_async"
    ),
    "rlxweb.select.device_report": "device_report",
    "rlxweb.select.policy": "DevicePolicy",
    "rlxweb.core.adc_samples": "Digital",
    "rlxweb.core.errors": "RlxError",
    "rlxweb.runtime.graph_files.safetensors_weights": "load_weights",
    "rlxweb.io.recording_reader": "read",
    "rlxweb.ir.symbolic_dim": "Dim",
    "rlxweb.ir.dtype": "DType",
    "rlxweb.ir.graph": "Graph",
    "rlxweb.ir.weight_quantization": "quantize_weights",
    "rlxweb.ir.tensor": "Tensor",
    "rlxweb.ops.custom_op_registration": "register_custom",
    "rlxweb.core.quantized_weights": "Quantized dequantize quantize",
    "rlxweb.runtime.compiled_graph": "CompiledGraph",
    "rlxweb.runtime.device_array": "DeviceArray put put_async",
    "rlxweb.runtime.device_benchmark": "DeviceBenchResult",
    "rlxweb.runtime.throttle_aware_router": "DeviceRouter",
    "rlxweb.runtime.auto_device_session": "FlexibleSession",
    "rlxweb.runtime.graph_devices": "GraphDevices",
    "rlxweb.runtime.loaded_graph": "LoadedGraph load",
    "rlxweb.runtime.profile": "Profile",
    "rlxweb.runtime.session": "Session",
    "rlxweb.signal.aperiodic": "aperiodic",
    "rlxweb.signal.aperiodic_result": "AperiodicFit",
    "rlxweb.signal.band_power": "BandPower band_power band_power_of",
    "rlxweb.signal.cross_spectra": "coherence coherence_async csd csd_async",
    "rlxweb.signal.welch_export": "export_welch",
    "rlxweb.signal.learned.transform_file": "load_learned",
    "rlxweb.signal.learned.learn": "Learned learn_welch",
    "rlxweb.signal.learned.transform": "LearnedTransform",
    "rlxweb.signal.morlet": "tfr_morlet tfr_morlet_async",
    "rlxweb.signal.multitaper": "multitaper multitaper_async",
    "rlxweb.signal.welch_peaks_result": "WelchPeaks",
    "rlxweb.signal.stft": "stft stft_async",
    "rlxweb.signal.istft": "istft istft_async",
    "rlxweb.signal.spectrogram": "spectrogram spectrogram_async",
    "rlxweb.signal.spectrum_result": "Spectrum",
    "rlxweb.signal.time_frequency_result": "TimeFrequency",
    "rlxweb.signal.welch": "welch welch_async",
    "rlxweb.signal.welch_peaks": "welch_peaks welch_peaks_async",
    "rlxweb.signal.stream_frame": "StreamFrame",
    "rlxweb.signal.welch_stream": "WelchStream",
    "rlxweb.trace.derivatives": "grad jvp value_and_grad",
    "rlxweb.trace.function": "Function function",
    "rlxweb.trace.jacobians": "hvp jacfwd jacrev",
    "rlxweb.trace.vmap": "vmap",
    "rlxweb.trace.graph_grad_and_vmap": "directional_nth_grad nth_order_grad",
    "rlxweb.trace.nn_namespace": "nn",
    "rlxweb.trace.gradient_checkpointing": "checkpoint",
    "rlxweb.trace.training.lbfgs": "Minimum lbfgs",
    "rlxweb.trace.training.loop": "Patience Trained train",
    "rlxweb.trace.training.optimizers": "Adam AdamW SGD",
}
_PUBLIC_DEVICES_NAMES = {
    "rlxweb.select.fallback": "run_with_fallback",
    "rlxweb.select.resolve": (
        "devices_for fastest_device_for resolve_device resolve_device_chain "
        "supports_graph"
    ),
    "rlxweb.core.device": "Device fastest_among parse_device parse_device_list",
    "rlxweb.select.availability": (
        "DeviceCandidate available_devices backends_manifest is_available"
    ),
    "rlxweb.select.device_report": "device_report",
    "rlxweb.select.policy": (
        "DevicePickStrategy DevicePolicy device_chain_from_env device_from_env"
    ),
    "rlxweb.core.errors": "DeviceFallbackError",
    "rlxweb.runtime.device_benchmark": "DeviceBenchResult benchmark_devices warm_all",
    "rlxweb.runtime.throttle_aware_router": "DeviceRouter",
    "rlxweb.runtime.auto_device_session": "FlexibleSession",
    "rlxweb.runtime.graph_devices": "GraphDevices graph_param_names",
}
_PUBLIC_SUBMODULES = ("errors", "io", "onnx", "ops", "plot", "rlx")
"""Submodules whose names are public too: `rlx.io.open_recording`, `rlx.plot.spectrum`.
"""
publish_names(__name__, _PUBLIC_NAMES)
publish_names("rlxweb.devices", _PUBLIC_DEVICES_NAMES)
register_providers(
    {
        "OP_MODULES": "rlxweb.ops.register_builtin_ops",
        "fastest_device_for": "rlxweb.select.resolve",
        "plot_result": "rlxweb.plot.plot_dispatch",
        "extra_labels": "rlxweb.engines.registry",
        "record_for": "rlxweb.select.calibration.engine_calibration_lookup",
        "save_graph": "rlxweb.runtime.graph_files.graph_writer",
        "find_row": "rlxweb.engines.registry",
    }
)

__all__ = published_names(__name__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("rlxweb")
    if name in _PUBLIC_SUBMODULES:
        return import_module(f"rlxweb.{name}")
    return load_published(__name__, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
