"""Replay of an exported plan's folder by raw wgpu calls, without rlxweb.

What a page's JavaScript does, in Python: so a folder is shown to be complete by itself.
The device gets WebGPU's default limits and what the plan asks for beyond them.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import wgpu

from tests.conftest import adapter_facts

DTYPES = {"f32": "f4", "f64": "f8", "i32": "i4", "u32": "u4", "f16": "f2"}
USAGE = wgpu.BufferUsage
USAGES = {
    "storage": USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST,
    "uniform": USAGE.UNIFORM | USAGE.COPY_DST,
    "readback": USAGE.MAP_READ | USAGE.COPY_DST,
}
BINDING_TYPES = {"r": "read-only-storage", "w": "storage", "u": "uniform"}


def _wgpu_name(limit: str) -> str:
    return re.sub("([A-Z])", r"-\1", limit).lower()


@cache
def open_device(features: tuple[str, ...], limits: tuple[tuple[str, int], ...]) -> Any:
    """Open the software Vulkan device with these features and limits, once for each
    combination.
    """
    adapter_facts("lavapipe")  # an error with a reason where it is not there
    adapters = wgpu.gpu.enumerate_adapters_sync()
    matches = [
        a
        for a in adapters
        if "llvmpipe" in a.summary and a.info["backend_type"] == "Vulkan"
    ]
    return matches[0].request_device_sync(
        required_features=list(features), required_limits=dict(limits)
    )


class PlanReplay:
    """Exported plan ready to run; `run` takes and returns arrays by name."""

    def __init__(self, folder: Path, file: str = "plan.json") -> None:
        self.plan = plan = json.loads((folder / file).read_text())
        assert plan["schema"] == "rlxweb.web/1"
        self.folder = folder
        requested_limits = {
            _wgpu_name(n): v for n, v in plan["limits"].items() if n.startswith("max")
        }
        features = tuple(plan["features"])
        self.device = dev = open_device(features, ())
        if any(
            dev.limits[name] < minimum for name, minimum in requested_limits.items()
        ):
            self.device = dev = open_device(features, tuple(requested_limits.items()))
        self.buffers = [
            dev.create_buffer(size=spec["nbytes"], usage=USAGES[spec["usage"]])
            for spec in plan["buffers"]
        ]
        self.group_layouts = [
            self._bind_group_layouts(spec["layout"]) for spec in plan["pipelines"]
        ]
        texts = [
            plan["texts"].get(path) or (folder / path).read_text()
            for path in plan["shaders"]
        ]
        self.pipelines = [
            dev.create_compute_pipeline(
                layout=dev.create_pipeline_layout(bind_group_layouts=groups),
                compute={
                    "module": dev.create_shader_module(code=texts[spec["shader"]]),
                    "entry_point": "main",
                    "constants": spec["constants"],
                },
            )
            for spec, groups in zip(plan["pipelines"], self.group_layouts, strict=True)
        ]
        data = (folder / plan["weights"]["file"]).read_bytes()
        assert len(data) == plan["weights"]["nbytes"]
        for buffer, offset, start, nbytes in plan["weights"]["writes"]:
            part = data[start : start + nbytes]
            dev.queue.write_buffer(self.buffers[buffer], offset, part)

    def _bind_group_layouts(self, layout: str) -> list[Any]:
        groups = [layout[:-1], "u"] if layout.endswith("u") else [layout]
        return [
            self.device.create_bind_group_layout(
                entries=[
                    {
                        "binding": binding,
                        "visibility": wgpu.ShaderStage.COMPUTE,
                        "buffer": {"type": BINDING_TYPES[letter]},
                    }
                    for binding, letter in enumerate(group)
                ]
            )
            for group in groups
        ]

    def run(self, feeds: dict[str, Any]) -> dict[str, Any]:
        """Return the outputs by name; raise IndexError when the fault flag is set."""
        queue = self.device.queue
        for name, spec in self.plan["inputs"].items():
            raw = _encode_array(np.asarray(feeds[name]), spec["dtype"])
            assert len(raw) == spec["nbytes"], (len(raw), spec)
            if raw:
                raw += bytes(-len(raw) % 4)
                queue.write_buffer(self.buffers[spec["buffer"]], spec["offset"], raw)
        encoder = self.device.create_command_encoder()
        for kind, *rest in self.plan["commands"]:
            getattr(self, f"_{kind}")(encoder, *rest)
        queue.submit([encoder.finish()])
        readback = self.plan["readback"]
        buffer = self.buffers[readback["buffer"]]
        buffer.map_sync(wgpu.MapMode.READ)
        raw = bytes(buffer.read_mapped(0, readback["nbytes"]))
        buffer.unmap()
        if (
            readback["fault"] is not None
            and np.frombuffer(raw, "u4", 1, readback["fault"])[0]
        ):
            raise IndexError("the fault flag is up")
        return {
            name: _decode_array(raw, spec)
            for name, spec in self.plan["outputs"].items()
        }

    def _d(
        self, encoder: Any, pipeline: int, ranges: Any, grid: Any, label: str
    ) -> None:
        compute_pass = encoder.begin_compute_pass()
        compute_pass.set_pipeline(self.pipelines[pipeline])
        layout, buffer_ranges = self.plan["pipelines"][pipeline]["layout"], list(ranges)
        groups = (
            [buffer_ranges[:-1], buffer_ranges[-1:]]
            if layout.endswith("u")
            else [buffer_ranges]
        )
        for index, group_ranges in enumerate(groups):
            bind_group = self.device.create_bind_group(
                layout=self.group_layouts[pipeline][index],
                entries=[
                    {
                        "binding": binding,
                        "resource": {
                            "buffer": self.buffers[buffer],
                            "offset": offset,
                            "size": size,
                        },
                    }
                    for binding, (buffer, offset, size) in enumerate(group_ranges)
                ],
            )
            compute_pass.set_bind_group(index, bind_group)
        compute_pass.dispatch_workgroups(*grid)
        compute_pass.end()

    def _c(self, encoder: Any, *copy: int) -> None:
        source, start, target, target_offset, nbytes = copy
        buffers = self.buffers
        encoder.copy_buffer_to_buffer(
            buffers[source], start, buffers[target], target_offset, nbytes
        )

    def _z(self, encoder: Any, buffer: int, offset: int, nbytes: int) -> None:
        encoder.clear_buffer(self.buffers[buffer], offset, nbytes)

    def load_case(self, index: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a test vector's inputs and the records of its outputs, with `want`."""
        vectors = json.loads((self.folder / "plan.json").read_text())["vectors"]
        data = (self.folder / vectors["file"]).read_bytes()
        assert len(data) == vectors["nbytes"]
        feeds, wanted = {}, {}
        for name, (start, nbytes) in vectors["cases"][index]["inputs"].items():
            spec = self.plan["inputs"][name]
            raw = data[start : start + nbytes]
            repeated = raw * -(-spec["nbytes"] // max(nbytes, 1)) if nbytes else b""
            feeds[name] = _decode_array(repeated, {**spec, "offset": 0})
        for name, spec in vectors["cases"][index]["outputs"].items():
            kind = "u32" if spec["dtype"] == "bool" else spec["dtype"]
            count = spec["nbytes"] // np.dtype(DTYPES[kind]).itemsize
            wanted[name] = spec | {
                "want": np.frombuffer(data, DTYPES[kind], count, spec["from"])
            }
        return feeds, wanted

    def check(self, index: int = 0) -> None:
        """Run a test vector and compare its outputs, like `run.check()` of an exported
        page.
        """
        feeds, wanted = self.load_case(index)
        self.compare(self.run(feeds), wanted)

    def compare(self, got: dict[str, Any], wanted: dict[str, Any]) -> None:
        """Check that every element is within its tolerance and that non-finite elements
        are equal.
        """
        for name, spec in wanted.items():
            want = spec["want"].astype("f8")
            have = got[name].reshape(-1).astype("f8")
            want = np.resize(want, have.shape) if spec["repeats"] else want
            have = have[: want.size]
            is_finite = np.isfinite(want)
            error = np.abs(have - want)[is_finite]
            allowed = (spec["atol"] + spec["rtol"] * np.abs(want))[is_finite]
            assert (error <= allowed).all(), (name, error.max(), spec)
            np.testing.assert_array_equal(
                have[~is_finite], want[~is_finite], err_msg=name
            )


class WelchPlanReplay(PlanReplay):
    """Replay of a plan with `welch`: scales rows and separates peaks from rounding
    errors.
    """

    def welch(self, x: Any) -> dict[str, Any]:
        """Return the results for rows x (rows, samples) of float32."""
        spec, data = self.plan["welch"], (self.folder / "weights.bin").read_bytes()
        x = np.array(x, "f4")
        assert x.shape == (spec["rows"], spec["samples"])
        exponents, energy = np.zeros(len(x), int), np.zeros(len(x))
        for row in range(len(x)):
            samples = x[row, : spec["used"]].astype("f8")
            if not np.isfinite(x[row]).all():
                raise ValueError(f"row {row} is not finite")
            total, largest = float((samples**2).sum()), float(np.abs(samples).max())
            shift = 0
            if largest > 0 and not spec["least"] <= total <= spec["most"]:
                shift = int(np.frexp(largest)[1])
                x[row] = np.ldexp(x[row].astype("f8"), -shift).astype("f4")
                total = float((x[row, : spec["used"]].astype("f8") ** 2).sum())
            exponents[row], energy[row] = (
                2 * shift + spec["shift"],
                total / spec["used"],
            )
        raw = self.run({spec["input"]: x})
        pairs = raw[spec["peaks"]] if spec["peaks"] else None
        spectrum = raw[spec["power"]] if spec["power"] else None
        bins = None if pairs is None else pairs[:, 0::2].astype("i8")
        power = None if pairs is None else pairs[:, 1::2].astype("f8")
        for row in np.flatnonzero(exponents):
            max_power = (power if spectrum is None else spectrum)[row].max()
            with np.errstate(over="ignore"):
                is_real = max_power > energy[row] * spec["floor_highest"]
                scaled_power = np.ldexp(max_power, exponents[row])
            if scaled_power > np.finfo("f4").max or (
                is_real and scaled_power < np.finfo("f4").tiny
            ):
                raise OverflowError(f"float32 cannot hold row {row}")
            energy[row] = np.ldexp(energy[row], exponents[row])
            if power is not None:
                power[row] = np.ldexp(power[row], exponents[row]).astype("f4")
            if spectrum is not None:
                spectrum = spectrum.copy()
                spectrum[row] = np.ldexp(
                    spectrum[row].astype("f8"), exponents[row]
                ).astype("f4")
        hz = np.arange(spec["bins"]) * spec["fs"] / spec["nfft"]
        if bins is None:
            return {"hz": hz, "power": spectrum}
        floor = np.frombuffer(data, "f8", spec["bins"], spec["floor"][0])
        out: dict[str, Any] = {
            "hz": np.full(bins.shape, np.nan),
            "power": np.full(bins.shape, np.nan, "f4"),
            "bins": np.full(bins.shape, -1, "i4"),
            "count": np.zeros(len(x), "i4"),
        }
        for row in range(len(x)):
            is_real = power[row] > energy[row] * floor[bins[row]]
            n = out["count"][row] = int(is_real.sum())
            out["bins"][row, :n] = bins[row][is_real]
            out["power"][row, :n] = power[row][is_real]
            out["hz"][row, :n] = hz[bins[row][is_real]]
        return out if spectrum is None else out | {"freqs": hz, "spectrum": spectrum}

    def check(self, index: int = 0) -> None:
        feeds, wanted = self.load_case(index)
        self.compare(self.welch(feeds["x"]), wanted)


def _encode_array(array: Any, dtype: str) -> bytes:
    return array.astype("u4" if dtype == "bool" else DTYPES[dtype]).tobytes()


def _decode_array(raw: bytes, spec: dict[str, Any]) -> Any:
    stored = "u4" if spec["dtype"] == "bool" else DTYPES[spec["dtype"]]
    count = spec["nbytes"] // np.dtype(stored).itemsize
    flat = np.frombuffer(raw, stored, count, spec["offset"])
    flat = flat != 0 if spec["dtype"] == "bool" else flat
    return flat.reshape(spec["shape"])
