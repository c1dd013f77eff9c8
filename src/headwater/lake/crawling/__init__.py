"""Crawling: looks at folders, clusters and databases, and proposes the loads of a lake.toml. Needs no Spark.

Little is read: a few files of each folder, a few records of each topic, the catalog of a database.
"""
