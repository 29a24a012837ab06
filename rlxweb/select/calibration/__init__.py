"""Calibration: measurement of engines, storage of results, and corrections from
observed runs.

profitability.py              when devices are worth opening and measuring
engine_calibration_lookup.py  what is known of an engine: stored, measured now, assumed
calibration_store.py          records in the cache folder
measure_engine.py             the measurement of one engine
calibration_jobs.py           graphs that it times
welch_jobs.py                 Welch estimates that it times
stopwatch.py                  times of short work, alone or in turns
autotune.py                   kernel variants of an op timed against each other
observed_run_corrections.py   factors by which real runs correct predictions
"""
