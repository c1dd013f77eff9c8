"""The pytest plugin: a fixture with a real broker for everybody's tests, and no cost for those that do not use it."""

import pytest

pytest_plugins = ["pytester"]

ROUND_TRIP = """
    import confluent_kafka

    def test_round_trip(headwater_broker):
        producer = confluent_kafka.Producer({"bootstrap.servers": headwater_broker.bootstrap})
        producer.produce("orders", b"one", partition=0)
        assert producer.flush(20) == 0
        consumer = confluent_kafka.Consumer({
            "bootstrap.servers": headwater_broker.bootstrap, "group.id": "unused", "enable.auto.commit": False,
        })
        consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
        assert consumer.poll(20).value() == b"one"
        consumer.close()

    class TestAgain:
        def test_it_is_the_same_broker_with_the_same_topics(self, headwater_broker):
            admin = confluent_kafka.Consumer({
                "bootstrap.servers": headwater_broker.bootstrap, "group.id": "unused",
            })
            assert "orders" in admin.list_topics(timeout=20).topics
            admin.close()
"""


@pytest.fixture(autouse=True)
def strict(pytester: pytest.Pytester) -> None:
    """A user who takes every warning for an error: the plugin must not give any."""
    pytester.makeini("[pytest]\nfilterwarnings = error\naddopts = -p no:cacheprovider\n")


def run_alone(pytester: pytest.Pytester) -> pytest.RunResult:
    """Runs with pytest's own plugins and ours: others may import what they like, and take their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return pytester.runpytest_subprocess("-p", "headwater")


def test_a_test_gets_a_broker_by_the_name_of_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ROUND_TRIP)
    pytester.runpytest_subprocess().assert_outcomes(passed=2)


def test_settings_come_from_a_fixture_that_can_be_overridden(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def headwater_broker_config():
            return {"num.partitions": 7, "auto.create.topics.enable": "true"}
        """
    )
    pytester.makepyfile(
        """
        import confluent_kafka

        def test_partitions(headwater_broker):
            producer = confluent_kafka.Producer({"bootstrap.servers": headwater_broker.bootstrap})
            producer.produce("orders", b"one")
            assert producer.flush(20) == 0
            assert len(producer.list_topics("orders", timeout=20).topics["orders"].partitions) == 7
        """
    )
    run_alone(pytester).assert_outcomes(passed=1)


def test_a_setting_that_cannot_be_is_an_error_that_says_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def headwater_broker_config():
            return {"num.partition": 7}

        def test_never(headwater_broker):
            raise AssertionError
        """
    )
    result = run_alone(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*num.partitions*"])


def test_a_run_that_does_not_use_it_pays_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_what_is_imported(request):
            assert request.config.pluginmanager.hasplugin("headwater")
            # The entry point itself may be there, and the two packages above it.
            mine = {name for name in sys.modules if name.partition(".")[0] == "headwater"}
            assert mine == {"headwater", "headwater.testing", "headwater.testing.pytest_plugin"}
            assert not {"kio", "uvloop", "cramjam", "crc32c", "typer", "rich"} & sys.modules.keys()
        """
    )
    run_alone(pytester).assert_outcomes(passed=1)
