"""What an operator asks of a cluster: one module per subject, and `Admin` (admin.py), which puts them under one roof.

The functions of the subjects take a `Client` and several things at once, and give `Results`. They decide nothing that a
broker decides: what it refuses is told as it says it.
"""
