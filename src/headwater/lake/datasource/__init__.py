"""Spark's data source `headwater`: topics of any Kafka, read straight into Arrow batches; and files, for loads.

Planning (`options`, `spots`, `topic_offsets`, `splits`, `filters`, `file_splits`) and reading (`topic_reader`,
`files_reader`, `lanes`) know nothing of Spark; only `source`, `stream` and `files_source` import it.
"""
