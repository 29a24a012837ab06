"""A run over recordings: what is asked, each file analysed, and what came of it."""
