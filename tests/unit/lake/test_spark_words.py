"""What a person is told when Spark does not start."""

from headwater.lake.spark import why_not_started

_STOPPED = Exception(
    "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
    ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n"
    "\tat org.apache.spark.SparkContext.assertNotStopped(SparkContext.scala:139)\n"
)


def test_a_cluster_that_sends_a_session_away_is_quoted() -> None:
    log = (
        'Setting Spark log level to "ERROR".\n'
        "26/01/31 12:00:04 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: "
        "All masters are unresponsive! Giving up.\n"
        "26/01/31 12:00:04 ERROR Inbox: Ignoring error\n"
    )
    assert why_not_started(_STOPPED, log) == "All masters are unresponsive! Giving up"


def test_without_such_words_the_error_speaks_for_itself() -> None:
    expected = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
    assert why_not_started(_STOPPED, "26/01/31 12:00:04 ERROR SparkContext: Error initializing\n") == expected
