"""Recurrent networks and linear recurrences over a sequence.

op.py                 lstm, gru and rnn
linear_recurrence.py  recurrence that mixes channels by products
linear_scan.py        recurrence of each channel by itself
selective_scan.py     selective scan of Mamba
activations.py        activations of cells
steps.py              one step of a cell
methods.py            methods of Graph
vjp.py                gradients
cpu/                  kernels for the CPU
wgsl/                 kernels for GPUs, whose text is generated: no folder of shaders
"""
