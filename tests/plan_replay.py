"""An exported folder run by raw wgpu calls: nothing of rlxweb reads it here.

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
TYPES = {"r": "read-only-storage", "w": "storage", "u": "uniform"}


def _wgpu_name(limit: str) -> str:
    return re.sub("([A-Z])", r"-\1", limit).lower()


@cache
def device(features: tuple[str, ...], limits: tuple[tuple[str, int], ...]) -> Any:
    """The software Vulkan device with what a plan asks for, opened once for each."""
    adapter_facts("lavapipe")  # an error with a reason where it is not there
    every = wgpu.gpu.enumerate_adapters_sync()
    found = [
        a
        for a in every
        if "llvmpipe" in a.summary and a.info["backend_type"] == "Vulkan"
    ]
    return found[0].request_device_sync(
        required_features=list(features), required_limits=dict(limits)
    )


class Replay:
    """The plan of a folder, ready to run: `run` takes and gives arrays by name."""

    def __init__(self, folder: Path, file: str = "plan.json") -> None:
        self.plan = plan = json.loads((folder / file).read_text())
        assert plan["schema"] == "rlxweb.web/1"
        self.folder = folder
        asked = {
            _wgpu_name(n): v for n, v in plan["limits"].items() if n.startswith("max")
        }
        features = tuple(plan["features"])
        self.device = dev = device(features, ())
        if any(dev.limits[name] < least for name, least in asked.items()):
            self.device = dev = device(features, tuple(asked.items()))
        self.buffers = [
            dev.create_buffer(size=one["nbytes"], usage=USAGES[one["usage"]])
            for one in plan["buffers"]
        ]
        self.layouts = [self._layouts(one["layout"]) for one in plan["pipelines"]]
        texts = [
            plan["texts"].get(path) or (folder / path).read_text()
            for path in plan["shaders"]
        ]
        self.pipelines = [
            dev.create_compute_pipeline(
                layout=dev.create_pipeline_layout(bind_group_layouts=groups),
                compute={
                    "module": dev.create_shader_module(code=texts[one["shader"]]),
                    "entry_point": "main",
                    "constants": one["constants"],
                },
            )
            for one, groups in zip(plan["pipelines"], self.layouts, strict=True)
        ]
        data = (folder / plan["weights"]["file"]).read_bytes()
        assert len(data) == plan["weights"]["nbytes"]
        for buffer, offset, start, nbytes in plan["weights"]["writes"]:
            part = data[start : start + nbytes]
            dev.queue.write_buffer(self.buffers[buffer], offset, part)

    def _layouts(self, letters: str) -> list[Any]:
        parts = [letters[:-1], "u"] if letters.endswith("u") else [letters]
        return [
            self.device.create_bind_group_layout(
                entries=[
                    {
                        "binding": at,
                        "visibility": wgpu.ShaderStage.COMPUTE,
                        "buffer": {"type": TYPES[letter]},
                    }
                    for at, letter in enumerate(part)
                ]
            )
            for part in parts
        ]

    def run(self, feeds: dict[str, Any]) -> dict[str, Any]:
        """Outputs by name; IndexError where the fault flag is up."""
        queue = self.device.queue
        for name, one in self.plan["inputs"].items():
            raw = _stored(np.asarray(feeds[name]), one["dtype"])
            assert len(raw) == one["nbytes"], (len(raw), one)
            if raw:
                raw += bytes(-len(raw) % 4)
                queue.write_buffer(self.buffers[one["buffer"]], one["offset"], raw)
        encoder = self.device.create_command_encoder()
        for kind, *rest in self.plan["commands"]:
            getattr(self, f"_{kind}")(encoder, *rest)
        queue.submit([encoder.finish()])
        back = self.plan["readback"]
        buffer = self.buffers[back["buffer"]]
        buffer.map_sync(wgpu.MapMode.READ)
        raw = bytes(buffer.read_mapped(0, back["nbytes"]))
        buffer.unmap()
        if back["fault"] is not None and np.frombuffer(raw, "u4", 1, back["fault"])[0]:
            raise IndexError("the fault flag is up")
        return {name: _taken(raw, one) for name, one in self.plan["outputs"].items()}

    def _d(self, encoder: Any, at: int, ranges: Any, grid: Any, label: str) -> None:
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(self.pipelines[at])
        letters, spans = self.plan["pipelines"][at]["layout"], list(ranges)
        parts = [spans[:-1], spans[-1:]] if letters.endswith("u") else [spans]
        for index, part in enumerate(parts):
            group = self.device.create_bind_group(
                layout=self.layouts[at][index],
                entries=[
                    {
                        "binding": binding,
                        "resource": {
                            "buffer": self.buffers[buffer],
                            "offset": offset,
                            "size": size,
                        },
                    }
                    for binding, (buffer, offset, size) in enumerate(part)
                ],
            )
            compute.set_bind_group(index, group)
        compute.dispatch_workgroups(*grid)
        compute.end()

    def _c(self, encoder: Any, *copy: int) -> None:
        source, start, target, to, nbytes = copy
        buffers = self.buffers
        encoder.copy_buffer_to_buffer(
            buffers[source], start, buffers[target], to, nbytes
        )

    def _z(self, encoder: Any, buffer: int, offset: int, nbytes: int) -> None:
        encoder.clear_buffer(self.buffers[buffer], offset, nbytes)

    def case(self, at: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """The inputs of a test vector, and its outputs' records with `want`."""
        record = json.loads((self.folder / "plan.json").read_text())["vectors"]
        data = (self.folder / record["file"]).read_bytes()
        assert len(data) == record["nbytes"]
        feeds, wanted = {}, {}
        for name, (start, nbytes) in record["cases"][at]["inputs"].items():
            one = self.plan["inputs"][name]
            raw = data[start : start + nbytes]
            whole = raw * -(-one["nbytes"] // max(nbytes, 1)) if nbytes else b""
            feeds[name] = _taken(whole, {**one, "offset": 0})
        for name, one in record["cases"][at]["outputs"].items():
            kind = "u32" if one["dtype"] == "bool" else one["dtype"]
            count = one["nbytes"] // np.dtype(DTYPES[kind]).itemsize
            wanted[name] = one | {
                "want": np.frombuffer(data, DTYPES[kind], count, one["from"])
            }
        return feeds, wanted

    def check(self, at: int = 0) -> None:
        """The case, as `run.check()` of a page does it."""
        feeds, wanted = self.case(at)
        self.compare(self.run(feeds), wanted)

    def compare(self, got: dict[str, Any], wanted: dict[str, Any]) -> None:
        """Every element within its tolerance; what is not finite is the same."""
        for name, one in wanted.items():
            want = one["want"].astype("f8")
            have = got[name].reshape(-1).astype("f8")
            want = np.resize(want, have.shape) if one["repeats"] else want
            have = have[: want.size]
            seen = np.isfinite(want)
            off = np.abs(have - want)[seen]
            allowed = (one["atol"] + one["rtol"] * np.abs(want))[seen]
            assert (off <= allowed).all(), (name, off.max(), one)
            np.testing.assert_array_equal(have[~seen], want[~seen], err_msg=name)


class WelchReplay(Replay):
    """A plan with `welch`: rows made ready, peaks told from rounding."""

    def welch(self, x: Any) -> dict[str, Any]:
        """The results of rows x (rows, samples) of float32."""
        w, data = self.plan["welch"], (self.folder / "weights.bin").read_bytes()
        x = np.array(x, "f4")
        assert x.shape == (w["rows"], w["samples"])
        by, energy = np.zeros(len(x), int), np.zeros(len(x))
        for row in range(len(x)):
            read = x[row, : w["used"]].astype("f8")
            if not np.isfinite(x[row]).all():
                raise ValueError(f"row {row} is not finite")
            total, big = float((read**2).sum()), float(np.abs(read).max())
            up = 0
            if big > 0 and not w["least"] <= total <= w["most"]:
                up = int(np.frexp(big)[1])
                x[row] = np.ldexp(x[row].astype("f8"), -up).astype("f4")
                total = float((x[row, : w["used"]].astype("f8") ** 2).sum())
            by[row], energy[row] = 2 * up + w["shift"], total / w["used"]
        raw = self.run({w["input"]: x})
        pairs = raw[w["peaks"]] if w["peaks"] else None
        powers = raw[w["power"]] if w["power"] else None
        bins = None if pairs is None else pairs[:, 0::2].astype("i8")
        power = None if pairs is None else pairs[:, 1::2].astype("f8")
        for row in np.flatnonzero(by):
            most = (power if powers is None else powers)[row].max()
            with np.errstate(over="ignore"):
                real, wide = (
                    most > energy[row] * w["floor_highest"],
                    np.ldexp(most, by[row]),
                )
            if wide > np.finfo("f4").max or (real and wide < np.finfo("f4").tiny):
                raise OverflowError(f"float32 cannot hold row {row}")
            energy[row] = np.ldexp(energy[row], by[row])
            if power is not None:
                power[row] = np.ldexp(power[row], by[row]).astype("f4")
            if powers is not None:
                powers = powers.copy()
                powers[row] = np.ldexp(powers[row].astype("f8"), by[row]).astype("f4")
        hz = np.arange(w["bins"]) * w["fs"] / w["nfft"]
        if bins is None:
            return {"hz": hz, "power": powers}
        floor = np.frombuffer(data, "f8", w["bins"], w["floor"][0])
        out: dict[str, Any] = {
            "hz": np.full(bins.shape, np.nan),
            "power": np.full(bins.shape, np.nan, "f4"),
            "bins": np.full(bins.shape, -1, "i4"),
            "count": np.zeros(len(x), "i4"),
        }
        for row in range(len(x)):
            real = power[row] > energy[row] * floor[bins[row]]
            n = out["count"][row] = int(real.sum())
            out["bins"][row, :n] = bins[row][real]
            out["power"][row, :n] = power[row][real]
            out["hz"][row, :n] = hz[bins[row][real]]
        return out if powers is None else out | {"freqs": hz, "spectrum": powers}

    def check(self, at: int = 0) -> None:
        feeds, wanted = self.case(at)
        self.compare(self.welch(feeds["x"]), wanted)


def _stored(array: Any, dtype: str) -> bytes:
    return array.astype("u4" if dtype == "bool" else DTYPES[dtype]).tobytes()


def _taken(raw: bytes, one: dict[str, Any]) -> Any:
    stored = "u4" if one["dtype"] == "bool" else DTYPES[one["dtype"]]
    count = one["nbytes"] // np.dtype(stored).itemsize
    flat = np.frombuffer(raw, stored, count, one["offset"])
    flat = flat != 0 if one["dtype"] == "bool" else flat
    return flat.reshape(one["shape"])
