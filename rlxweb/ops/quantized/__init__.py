"""Quantization, and products and convolutions of quantized operands."""
