"""One module per API. Each names the versions it serves, what differs between them, and what is left out on purpose.

A module has `handle(context, request)`, plain or async, which takes and returns kio's classes of version `VERSION`
(the newest served, unless it says otherwise).
"""
