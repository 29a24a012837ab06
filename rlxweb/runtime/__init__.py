"""Sessions: a graph compiled for one device, run many times."""
