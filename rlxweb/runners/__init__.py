"""One graph on many devices: compiled on each, run on any, compared and reported."""
