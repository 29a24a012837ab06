"""HOW MUCH: cost models, IO profiles, fusion gates."""
