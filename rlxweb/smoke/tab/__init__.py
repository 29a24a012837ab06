"""The suite in a tab of a browser: Python and this very package, served on loopback."""
