"""One file for a graph and its weights, and the weights of others: safetensors."""
