"""A table grows towards a wanted schema, in one commit, and never loses a column."""

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from catalog_parts import TABLE
from headwater.catalog.client import CatalogClient, CatalogError

LAYOUT = pa.schema(
    [
        ("id", pa.int32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("who", pa.struct([("name", pa.string()), ("tags", pa.list_(pa.string()))])),
        ("prices", pa.map_(pa.string(), pa.struct([("amount", pa.float32())]))),
        ("amount", pa.decimal128(9, 2)),
        ("_key", pa.binary()),
        ("_rescued", pa.map_(pa.string(), pa.string())),
        ("_corrupt_record", pa.string()),
    ]
)


def test_a_table_is_created_with_its_namespace_and_read_back_alike(ledger: CatalogClient) -> None:
    made = ledger.evolve(
        "deep.raw.events",
        LAYOUT,
        partition_spec=[("day", "at"), ("bucket[4]", "id")],
        sort_order=["id", ("at", "desc")],
        properties={"write.parquet.compression-codec": "zstd"},
    )
    assert made.schema.equals(LAYOUT)
    assert made.partition_spec == (("day", "at"), ("bucket[4]", "id"))
    assert made.sort_order == (("id", "asc"), ("at", "desc"))
    assert made.properties == {"write.parquet.compression-codec": "zstd"}
    assert (made.snapshot_id, made.positions) == (None, {})
    assert ledger.table_state("deep.raw.events") == made


def test_what_is_there_already_is_no_commit(ledger: CatalogClient) -> None:
    made = ledger.evolve(TABLE, LAYOUT, partition_spec=[("day", "at")], sort_order=["id"], properties={"a": "b"})
    again = ledger.evolve(TABLE, LAYOUT, partition_spec=[("day", "at")], sort_order=["id"], properties={"a": "b"})
    part = ledger.evolve(TABLE, pa.schema([("id", pa.int32())]))
    assert again == part == made
    assert again.metadata_location == made.metadata_location


def test_columns_are_added_at_every_depth_and_widened_in_one_commit(ledger: CatalogClient, rest: RestCatalog) -> None:
    ledger.evolve(TABLE, LAYOUT)
    before = rest.load_table(TABLE)
    wanted = pa.schema(
        [
            ("id", pa.int64()),
            ("who", pa.struct([("age", pa.int32()), ("name", pa.string())])),
            ("prices", pa.map_(pa.string(), pa.struct([("amount", pa.float64()), ("currency", pa.string())]))),
            ("amount", pa.decimal128(18, 2)),
            ("new", pa.list_(pa.struct([("x", pa.int64())]))),
        ]
    )
    grown = ledger.evolve(TABLE, wanted)
    assert grown.schema.field("id").type == pa.int64()
    assert grown.schema.field("who").type == pa.struct(
        [("name", pa.string()), ("tags", pa.list_(pa.string())), ("age", pa.int32())]
    )
    prices = grown.schema.field("prices").type.item_type
    assert prices == pa.struct([("amount", pa.float64()), ("currency", pa.string())])
    assert grown.schema.field("amount").type == pa.decimal128(18, 2)
    assert grown.schema.field("new").type == pa.list_(pa.struct([("x", pa.int64())]))
    after = rest.load_table(TABLE)
    assert len(after.metadata.metadata_log) == len(before.metadata.metadata_log) + 1
    assert after.schema().find_field("id").field_id == before.schema().find_field("id").field_id
    ids = list(after.schema()._lazy_id_to_name)
    assert len(ids) == len(set(ids))


def test_a_narrower_wish_leaves_a_wider_column(ledger: CatalogClient) -> None:
    ledger.evolve(TABLE, pa.schema([("id", pa.int64()), ("price", pa.float64())]))
    state = ledger.evolve(TABLE, pa.schema([("id", pa.int32()), ("price", pa.float32())]))
    assert (state.schema.field("id").type, state.schema.field("price").type) == (pa.int64(), pa.float64())


def test_a_required_column_is_relaxed_when_values_are_missing(ledger: CatalogClient) -> None:
    ledger.evolve(TABLE, pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    state = ledger.evolve(TABLE, pa.schema([pa.field("id", pa.int64()), pa.field("b", pa.int64(), nullable=False)]))
    assert [field.nullable for field in state.schema] == [True, True]


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        (pa.int64(), pa.string()),
        (pa.string(), pa.int64()),
        (pa.string(), pa.struct([("a", pa.int64())])),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.string())])),
        (pa.list_(pa.int64()), pa.list_(pa.string())),
        (pa.decimal128(9, 2), pa.decimal128(18, 3)),
    ],
)
def test_what_needs_a_rewrite_is_refused_and_changes_nothing(
    ledger: CatalogClient, there: pa.DataType, wanted: pa.DataType
) -> None:
    before = ledger.evolve(TABLE, pa.schema([("value", there)]))
    with pytest.raises(CatalogError, match=r"column value.* cannot become") as caught:
        ledger.evolve(TABLE, pa.schema([("value", wanted), ("other", pa.int64())]))
    assert caught.value.status == 400
    assert ledger.table_state(TABLE) == before


def test_names_with_dots_and_capitals_are_names_like_others(ledger: CatalogClient) -> None:
    ledger.evolve(TABLE, pa.schema([("a.b", pa.int64()), ("Name", pa.string()), ("name", pa.string())]))
    state = ledger.evolve(TABLE, pa.schema([("a.b", pa.int64()), ("a.c", pa.int64()), ("größe", pa.int64())]))
    assert state.schema.names == ["a.b", "Name", "name", "a.c", "größe"]


def test_a_spec_evolves_and_comes_back(ledger: CatalogClient, rest: RestCatalog) -> None:
    ledger.evolve(TABLE, LAYOUT, partition_spec=[("day", "at")])
    assert ledger.evolve(TABLE, LAYOUT, partition_spec=[("month", "at")]).partition_spec == (("month", "at"),)
    assert ledger.evolve(TABLE, LAYOUT).partition_spec == (("month", "at"),)
    assert ledger.evolve(TABLE, LAYOUT, partition_spec=[("day", "at")]).partition_spec == (("day", "at"),)
    assert ledger.evolve(TABLE, LAYOUT, partition_spec=[]).partition_spec == ()
    assert len(rest.load_table(TABLE).specs()) == 3


def test_icebergs_own_schema_is_taken_too(ledger: CatalogClient) -> None:
    schema = {"type": "struct", "fields": [{"id": 7, "name": "id", "required": False, "type": "uuid"}]}
    assert ledger.evolve(TABLE, schema).iceberg_schema.count('"uuid"') == 1


def test_two_who_grow_a_table_at_once_both_succeed(ledger: CatalogClient) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def grow(number: int) -> None:
        ledger.evolve(TABLE, pa.schema([("id", pa.int64()), (f"column_{number}", pa.string())]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(grow, range(8)))
    state = ledger.table_state(TABLE)
    assert state is not None
    assert sorted(state.schema.names) == ["column_0", *(f"column_{number}" for number in range(1, 8)), "id"]


def test_a_thousand_columns_are_no_burden(ledger: CatalogClient) -> None:
    wide = pa.schema([(f"c{number}", pa.string()) for number in range(1_000)])
    assert ledger.evolve(TABLE, wide).schema.equals(wide)


def test_a_table_without_a_namespace_is_refused(ledger: CatalogClient) -> None:
    with pytest.raises(CatalogError, match=r"namespace\.table"):
        ledger.evolve("events", LAYOUT)
