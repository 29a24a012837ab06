"""Recurrent networks and linear recurrences over a sequence."""
