"""The real peers of tests and benchmarks: Apache Kafka, kcat, kafkajs, and headwater as a process of its own."""
