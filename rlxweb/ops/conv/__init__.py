"""Convolutions: plain, grouped, transposed and deformable.

op.py             the op `conv`
transpose.py      transposed convolution
deform.py         deformable convolution
windows.py        sizes and padding of sliding windows, which pools have too
methods.py        methods of Graph
vjp.py            gradients
array_library.py  variants by PyTorch and XLA
cpu/              kernels for the CPU
wgsl/             kernel plans for GPUs, over `shaders/conv/`
"""
