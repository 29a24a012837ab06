"""Sessions and compiled graphs: compile a graph for one device and run it many
times.
"""
