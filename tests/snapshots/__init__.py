"""Records of what rlxweb generates, publishes and decides, so that a change shows."""
