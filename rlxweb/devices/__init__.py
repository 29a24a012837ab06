"""WHERE to compute: device names, availability, reports."""
