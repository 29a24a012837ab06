"""Sessions and the blocking driver: how a prepared program is run, and run again."""
