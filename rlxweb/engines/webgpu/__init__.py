"""WebGPU engine: plans as WGSL dispatches, run through a GPU port."""
