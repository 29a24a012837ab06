"""Scaled dot-product attention and rotary position embedding.

op.py                   the op `attention`
rotary.py               the op `rope`
operand_shapes.py       layouts, head counts and lengths of the operands
samples.py              cases that every engine must get right
fusion.py               attention written out as other ops, as exporters do
methods.py              methods of Graph: scaled_dot_product_attention
rotary_methods.py       methods of Graph: rope
cpu/                    kernels for the CPU
wgsl/                   the kernel for GPUs, whose text is generated: no folder of
                        shaders
"""
