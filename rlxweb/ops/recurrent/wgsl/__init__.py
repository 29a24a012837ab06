"""GPU kernels of recurrences.

cell.py               specification of a network, and WGSL of one step
plan.py               steps of lstm, gru and rnn
linear_recurrence.py  the op of the same name
linear_scan.py        the op of the same name
selective_scan.py     the op of the same name
"""
