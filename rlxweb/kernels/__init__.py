"""WGSL generation without a device: from a kernel dispatch to shader text, bindings and
grids.
"""
