"""Sockets and frames: accepts connections, cuts the stream into request frames, sends replies in order.

Knows nothing of Kafka beyond the four bytes of length in front of a frame.
"""
