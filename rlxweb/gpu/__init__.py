"""The GPU port: nine verbs over any WebGPU. Knows buffers and commands, no tensors."""
