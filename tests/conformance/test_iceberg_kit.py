"""Apache Iceberg's own compatibility tests of a REST catalog, with its Java client: all that apply hold for ours."""

from pathlib import Path

import pytest

from headwater.catalog.server import EmbeddedCatalog
from peers import iceberg_kit
from peers.presence import require

pytestmark = pytest.mark.peer

NOT_OURS = {
    "createAndDropEmptyNamespace()": "there is no namespace without a name",
    "listNamespacesWithEmptyNamespace()": "there is no namespace without a name",
    "listTablesInEmptyNamespace()": "there is no namespace without a name",
    "namespacePropertiesOnEmptyNamespace()": "there is no namespace without a name",
    "createTableInUniqueLocation()": "the kit itself leaves it out for servers that it does not start",
}
MOST_TESTS = 101


def test_icebergs_compatibility_kit_is_content(tmp_path: Path) -> None:
    require(iceberg_kit.why_absent())
    # Some of its tests choose such a folder themselves.
    allowed = ["/tmp/ns", "/tmp/newdb"]
    with EmbeddedCatalog(str(tmp_path / "catalog.db"), str(tmp_path / "warehouse"), allow_locations=allowed) as catalog:
        found = iceberg_kit.run_kit(catalog.uri, f"file://{tmp_path}/warehouse")
    failed = [test for test in found if test.outcome == "FAILED"]
    assert failed == []
    left_out = {test.name for test in found if test.outcome in ("ABORTED", "SKIPPED")}
    assert left_out == NOT_OURS.keys()
    assert len([test for test in found if test.outcome == "SUCCESSFUL"]) >= MOST_TESTS
