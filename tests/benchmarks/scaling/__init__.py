"""What many workers bring: measured at one and two, simulated up to a thousand."""
