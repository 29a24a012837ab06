"""Ops on images: resize, grid sampling, RoI align and non-maximum suppression.

resize.py                       resize
resize_interpolation_tables.py  its tables of elements and weights
grid_sample.py                  grid_sample
roi_align.py                    roi_align
roi_align_vjp.py                its gradient
non_max_suppression.py          non_max_suppression
methods.py                      methods of Graph that resize and sample
detection_methods.py            methods of Graph for object detection
wgsl/                           kernel plans for GPUs, over `shaders/vision/`
"""
