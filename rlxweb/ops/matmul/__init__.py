"""Matrix products: batched, grouped by expert, low-rank, with bias and activation."""
