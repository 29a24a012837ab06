"""GPU kernels of sorting and topk.

plan.py        bitonic network, and binary search
merge_sort.py  merge sort of argsort and topk
serial_topk.py topk by an invocation for each row
topk.py        topk by a workgroup for each row
"""
