"""Device choice: one chooser for graphs and for Welch jobs."""
