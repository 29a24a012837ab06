"""Pooling: maximum of each window and its index, sum, mean and p-norm."""
