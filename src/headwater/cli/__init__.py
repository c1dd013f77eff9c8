"""The `headwater` command: one module per command group, each loaded only when it is called.

It may use everything below it; nothing imports it.
"""
