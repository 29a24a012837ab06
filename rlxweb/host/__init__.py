"""NumPy kernels: one fast Welch estimate and search, for the CPU engine and signals."""
