"""What rlxweb generates, publishes and decides, recorded, so that a change shows."""
