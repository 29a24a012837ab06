"""Elementwise ops: each result from one element of each operand.

op.py                         add, sub, mul, div, maximum, minimum, pow, comparisons,
                              where
division.py                   floored and rounded quotients and remainders, atan2
logic.py                      logical and bitwise ops, shifts
cast.py                       cast
bitcast.py                    bitcast
activation.py                 gelu to tanh; exp, log, roots, sin, cos, tan, atan, neg,
                              abs, round
unary_math.py                 erf, other powers and logarithms, hyperbolic and inverse
                              functions, isnan
unary_factories.py            what the records of both are made by
parametric_activation.py      softplus, elu, leaky_relu, …: activations with parameters
parametric_activation_vjp.py  their gradients
glu.py                        gated linear units
methods.py                    methods of Graph of several ops
cpu.py                        NumPy kernels of erf, sigmoid and relu

GPUs need no kernel of their own: code is generated from each record's expression, with
`shaders/include/`.
"""
