"""Quantization, and products and convolutions of quantized operands.

quantize.py             quantize_linear and dequantize_linear
integer_matmul_conv.py  matmul_integer and conv_integer
matmul.py               products with packed weights of a few bits
methods.py              methods of Graph, under ONNX's names
packed_methods.py       methods of Graph for packed weights
cpu.py                  NumPy kernel of products with packed weights
wgsl.py                 kernel plans of the same for GPUs, over `shaders/matmul/`
"""
