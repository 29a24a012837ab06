"""Training: optimizers, the training loop, and the files it resumes from.

Everything here is functions on arrays, traced and compiled by `rlxweb.tracing`; the
state of a training stays on the device from step to step.
"""
