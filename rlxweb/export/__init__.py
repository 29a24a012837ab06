"""Export of compiled plans to a folder that a browser runs without Python.

A graph is compiled for a tab's WebGPU and prepared on a port that records; what was
recorded becomes `plan.json`, shaders and weights, beside the runtime that replays them.
"""
