"""Does every engine of the machine compute right, and how fast? One list of cases.

The tests, the command line and the site's check page judge by what is written here.
"""
