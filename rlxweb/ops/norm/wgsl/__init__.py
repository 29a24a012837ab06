"""GPU kernels of softmax and norms, besides the ops' own.

in_registers.py   whole rows in registers
per_workgroup.py  a workgroup for each row
add_norm.py       residual sum and norm
"""
