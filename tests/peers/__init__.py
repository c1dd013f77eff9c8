"""The real peers of tests and benchmarks: Apache Kafka, kcat, and headwater as a process of its own."""
