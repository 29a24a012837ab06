"""Training: optimizers, the training loop, and the files it resumes from.

Everything here is functions on arrays, traced and compiled by `rlxweb.trace`; the
state of a training stays on the device from step to step.
"""
