"""What was chosen and why, as plain data: candidates, their terms, and the prose."""
