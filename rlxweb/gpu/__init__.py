"""Protocol for GPU access and its implementations; knows buffers and commands, no
tensors.
"""
