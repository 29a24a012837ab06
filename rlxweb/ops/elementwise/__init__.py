"""Elementwise ops: each result from one element of each operand.

op.py                         add, sub, mul, div, maximum, minimum, pow, comparisons,
                              where
division.py                   floored and rounded quotients and remainders, atan2
logic.py                      logical and bitwise ops, shifts
cast.py                       cast
bitcast.py                    bitcast
activation.py                 RLX's unary functions: gelu to tanh; exp, log, roots, sin,
                              cos, tan, atan, neg, abs, round
unary_math.py                 other mathematical functions of one operand: erf, powers,
                              logarithms, hyperbolic and inverse functions, isnan
unary_factories.py            factories of the records of functions of one operand
parametric_activation.py      other activations: softplus, elu, leaky_relu …
parametric_activation_vjp.py  their gradients
glu.py                        gated linear units
methods.py                    methods of Graph of several ops
cpu.py                        NumPy kernels of erf, sigmoid and relu

A new function of one operand goes into unary_math.py, a new activation into
parametric_activation.py. GPUs need no kernel of their own: code is generated from each
record's expression, with `shaders/include/`.
"""
