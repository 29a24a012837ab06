"""WHERE and HOW to run: one chooser for graphs and for Welch jobs."""
