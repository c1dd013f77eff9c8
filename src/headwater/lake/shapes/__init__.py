"""Shapes of data: what is in it, the schema that holds it, the columns it becomes. Pure: no Spark, no files.

Nobody's data stops a load, nothing is lost, nothing is changed silently: after a load every value is typed in its
column, or as text in `_rescued`, or in a record kept whole in `_corrupt_record`.

>>> import pyarrow as pa
>>> records = pa.array([b'{"id": 1}', b'{"id": "two"}', b'{"id": 3, "at": "2024-02-29"}'])
>>> plan = plan_schema(shape_of_json(records))
>>> [(field.name, str(field.type)) for field in plan.schema]
[('id', 'int64'), ('at', 'date32[day]')]
>>> parse_json(records, plan.schema).to_pylist()[1]
{'id': None, 'at': None, '_rescued': [('id', '"two"')], '_corrupt_record': None}
"""

from headwater.lake.shapes.csv_text import parse_csv, shape_of_csv
from headwater.lake.shapes.declared import shape_of_arrow
from headwater.lake.shapes.inference import shape_of_json
from headwater.lake.shapes.parsing import parse_json
from headwater.lake.shapes.paths import METADATA_COLUMNS
from headwater.lake.shapes.planning import SchemaChange, SchemaPlan, plan_schema
from headwater.lake.shapes.policies import POLICIES, Policies
from headwater.lake.shapes.shape import Shape, merge_shapes

__all__ = [
    "METADATA_COLUMNS",
    "POLICIES",
    "Policies",
    "SchemaChange",
    "SchemaPlan",
    "Shape",
    "merge_shapes",
    "parse_csv",
    "parse_json",
    "plan_schema",
    "shape_of_arrow",
    "shape_of_csv",
    "shape_of_json",
]
