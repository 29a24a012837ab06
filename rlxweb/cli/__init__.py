"""Command-line interface: one module per command, without logic that a library user
would miss.

`main.py` owns the error boundary and the exit codes, `job.py` the work, and the files
beside them what is written, drawn and printed. Nothing below may import this package.
"""
