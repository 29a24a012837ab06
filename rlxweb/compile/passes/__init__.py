"""Graph → Graph rewrites. Valid graph in, valid graph out, same outputs in meaning."""
