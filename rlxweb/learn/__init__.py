"""Training of transforms for a user's own recordings and job."""
