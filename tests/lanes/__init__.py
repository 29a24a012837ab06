"""Run WGSL lane by lane in NumPy: races, bank conflicts and barriers without a GPU."""
