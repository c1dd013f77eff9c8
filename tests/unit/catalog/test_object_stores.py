"""How an S3 store is reached: what a URL says, what the variables of AWS say, and what is usual."""

import pytest

from headwater.catalog import object_stores
from headwater.catalog.object_stores import S3Place, StoreAddressError, environment_properties, is_s3
from headwater.catalog.places import warehouse_url

ENDPOINT = "http://127.0.0.1:9000"


def test_a_url_names_a_bucket_and_a_folder_and_may_say_how_it_is_reached() -> None:
    place = S3Place.parse(f"s3a://bucket/a b/c%20d#e/?endpoint={ENDPOINT}&region=x&addressing=virtual")
    assert place.url == "s3://bucket/a b/c%20d#e"
    assert place.settings == {"endpoint": ENDPOINT, "region": "x", "addressing": "virtual"}
    assert S3Place.parse(place.whole_url) == place
    assert S3Place.parse("s3://bucket").url == "s3://bucket"


def test_pyarrows_names_for_the_endpoint_are_understood() -> None:
    place = S3Place.parse("s3://bucket/in?endpoint_override=127.0.0.1:9000&scheme=http")
    assert place.endpoint == ENDPOINT
    assert S3Place.parse("s3://bucket?endpoint_override=store.example").endpoint == "https://store.example"


@pytest.mark.parametrize("url", ["s3:///lake", "s3://k:my-secret@bucket?regoin=x", "s3://bucket?addressing=host"])
def test_what_is_no_address_is_told_without_its_keys(url: str) -> None:
    with pytest.raises(StoreAddressError) as told:
        S3Place.parse(url)
    assert "my-secret" not in str(told.value)


def test_the_url_comes_before_the_variables_and_s3s_own_before_those_of_all_services() -> None:
    variables = {
        "AWS_ENDPOINT_URL": "http://all.example",
        "AWS_ENDPOINT_URL_S3": "http://s3.example",
        "AWS_DEFAULT_REGION": "default",
        "AWS_REGION": "region",
    }
    found = S3Place.parse("s3://bucket").resolved(variables)
    assert (found.endpoint, found.region, found.addressing) == ("http://s3.example", "region", "path")
    told = S3Place.parse(f"s3://bucket?endpoint={ENDPOINT}&region=x").resolved(variables)
    assert (told.endpoint, told.region) == (ENDPOINT, "x")
    assert S3Place.parse("s3://bucket").resolved({"AWS_ENDPOINT_URL": ENDPOINT}).region == "us-east-1"
    assert environment_properties(variables) == {"s3.endpoint": "http://s3.example", "client.region": "region"}


def test_aws_itself_is_asked_where_a_bucket_is_only_if_nobody_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_stores, "_region_of", lambda bucket: f"where {bucket} is")
    found = S3Place.parse("s3://bucket").resolved({})
    assert (found.endpoint, found.region, found.addressing) == (None, "where bucket is", "virtual")
    assert S3Place.parse("s3://bucket").resolved({"AWS_DEFAULT_REGION": "x"}).region == "x"


def test_a_warehouse_is_a_folder_or_in_s3() -> None:
    assert warehouse_url(f"s3a://bucket/lake/?endpoint={ENDPOINT}") == "s3://bucket/lake"
    assert not is_s3("/s3://bucket")
    with pytest.raises(StoreAddressError, match="not gs://"):
        warehouse_url("gs://bucket/lake")
    with pytest.raises(StoreAddressError, match="named with its keys") as told:
        warehouse_url("s3://key:my-secret@bucket/lake")
    assert "my-secret" not in str(told.value)
