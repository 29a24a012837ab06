"""GPU kernels of sorting and topk.

plan.py        bitonic network, and binary search
merge_sort.py  merge sort of argsort and topk
topk.py        topk by a workgroup for each row
"""
