"""GPU kernels of Welch estimates.

workgroup.py            a workgroup for each row: frames to peaks
workgroup_outputs.py    its output stages
cooperative.py          a group of lanes for each row, in registers
cooperative_outputs.py  its output stages
peaks_plan.py           peaks of each row, one bin after the other
power_peaks.py          peaks by ranking bins
psd.py                  power spectra of whole rows
"""
