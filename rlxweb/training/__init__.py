"""Training: optimisers, the loop that steps them, and the files it may go on from.

Everything here is functions on arrays, traced and compiled by `rlxweb.tracing`; the
state of a training stays on the device from step to step.
"""
