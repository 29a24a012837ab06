"""Computation on many machines with Dask: recordings one by one, arrays chunk by chunk.

Dask is an extra, `pip install "rlxweb[dask]"`, and is imported by nothing outside this
package. `rlxweb.dask` is the public address of what works on Dask's arrays.
"""
