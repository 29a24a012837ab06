"""Scaled dot-product attention and rotary position embedding."""
