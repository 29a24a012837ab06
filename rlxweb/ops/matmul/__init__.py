"""Matrix products: batched, grouped by expert, low-rank, with bias and activation.

op.py       matmul, fused_matmul_bias_act, and their plan over `shaders/matmul/`
grouped.py  grouped matmul
lora.py     LoRA matmul
methods.py  methods of Graph
cpu/        kernels for the CPU
wgsl/       kernel variants for GPUs
"""
