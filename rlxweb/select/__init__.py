"""Device choice: one chooser for graphs and for Welch jobs.

chooser.py                  the cases of a choice, in the order in which they are asked
graph_job.py                graphs as jobs: their plans at each place, priced
policy.py                   allowed, denied and preferred devices, and their variables
device_pick_cache.py        picks of jobs that come again
device_and_adapter.py       places: a device and, of several, the adapter
availability.py             devices that are there, and why others are not
calibration/                measured speeds, corrections by runs, when to measure
fallback.py                 the first device of a list that succeeds
device_loss_retry.py        runs whose device was lost
resolve.py                  RLX's functions that name a device for a graph
choice_by_rlx_constants.py  picks of `cost_mode="seed"`
device_report.py            which devices can run a graph
"""
