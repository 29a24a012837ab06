"""Snapshots of what rlxweb generates, publishes and decides, so that changes show."""
