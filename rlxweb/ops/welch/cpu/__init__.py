"""CPU kernels of spectral estimates: NumPy and LLVM.

numpy.py                     the ops by NumPy, in blocks
spectrum.py                  averaged power spectra by NumPy
segment_spectra.py           spectra of segments, not averaged
segment_fft_workspace.py     transforms of segments by one thread
strongest_bins.py            search for the k strongest bins
matmul_bin_power.py          power of a few bins by one matrix product
multitaper_power.py          power under several tapers
cross_power_matrix.py        cross powers of rows in pairs
overlap_add.py               segments added up into rows
wavelet_convolution.py       convolution of rows with wavelets
decimate_rows.py             low-pass filtering and decimation
rows.py                      rows through a compiled estimate, on threads
kernel.py                    which estimates have compiled code, and its arguments
kernel_cache.py              JIT cache of them
llvm_kernel.py               LLVM code of an estimate
llvm_segment_preparation.py  LLVM code of detrend and window
llvm_power_sums.py           LLVM code of the sums of powers
llvm_top_k_search.py         LLVM code of the search for peaks
llvm_row_checks.py           LLVM code of checks of samples and powers
llvm_decimation.py           LLVM code of a decimating filter
"""
