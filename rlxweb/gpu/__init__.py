"""The GPU port: ten verbs over any WebGPU. Knows buffers and commands, no tensors."""
