"""Decisions as plain data: candidates, their cost terms, and the text that explains
them.
"""
