"""`TableMetadata` of pyiceberg as a type that checkers and people can read."""

from typing import TypeAlias

from pyiceberg.table.metadata import TableMetadataV1, TableMetadataV2, TableMetadataV3

AnyMetadata: TypeAlias = TableMetadataV1 | TableMetadataV2 | TableMetadataV3
"""A table's metadata, of whatever format version."""
