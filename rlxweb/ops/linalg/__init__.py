"""Linear systems, determinants, triangular systems and Cholesky factors."""
