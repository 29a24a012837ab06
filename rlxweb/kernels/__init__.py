"""Shader text and geometry: from a Call to WGSL, bindings, grids. Knows no device."""
