"""Ops that move data and compute nothing: reshape, transpose, slice, pad, tile.

op.py                     reshape, transpose, narrow, expand and concat
slice_and_windows.py      strided slices and sliding windows
index_map_op_factory.py   ops described by one index table per axis
pad_tile_roll.py          pad, tile, repeat, roll, dilate and remap
identity.py               ops that steer differentiation
numpy_sliding_windows.py  windows of NumPy arrays, for references
methods.py                methods of Graph
pad_tile_roll_methods.py  those of padding, tiling, rolling and depth to space
index_map_vjp.py          gradients of index-map ops
pad_tile_roll_vjp.py      gradients of pad, tile, repeat, roll and dilate
windows_frames_vjp.py     gradients of windows and frames
cpu.py                    NumPy kernels
wgsl/                     kernel plans for GPUs, over `shaders/layout/`
"""
