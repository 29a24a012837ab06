"""Live signals: sources, continuous analysis and a web page."""
