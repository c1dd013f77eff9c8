"""The blocking clients: plain calls over the asyncio clients, which live on a thread of their own.

Nothing of Kafka is decided here; what a call means is written in `client/producer`, `consumer` and `admin`.
"""
