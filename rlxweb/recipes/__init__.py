"""Arithmetic that ops and kernels share: how a job is cut into calls. No device."""
