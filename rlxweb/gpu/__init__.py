"""The GPU port: eight verbs over any WebGPU. Knows buffers and commands, no tensors."""
