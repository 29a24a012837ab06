"""Graph files: one file for a graph and its weights; and weights of other safetensors
files.
"""
