"""Measured figures: taking them, keeping them, and what runs say of them since."""
