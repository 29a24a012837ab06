"""The formulas of RLX, to the last digit, for comparison. No default rests on them."""
