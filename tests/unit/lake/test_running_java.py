"""What a Java that runs already lacks of what a later lake asks for."""

import pytest

from headwater.lake.running_java import what_java_lacks

STARTED_WITH = {
    "spark.jars": "file:///jars/iceberg-1.jar,file:///ivy/org.postgresql_postgresql-42.jar",
    "java.class.path": "/spark/conf:/spark/jars/hadoop-3.jar",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "",
    "spark.driver.defaultJavaOptions": "",
    "spark.driver.extraClassPath": "",
    "spark.driver.extraLibraryPath": "",
}


def test_the_same_or_less_is_all_right() -> None:
    jars = "/jars/iceberg-1.jar,/elsewhere/postgresql-42.jar,/mine/hadoop-3.jar"
    assert what_java_lacks({"spark.jars": jars, "spark.driver.memory": "1g"}, STARTED_WITH) == ""
    assert what_java_lacks({"spark.executor.memory": "7g"}, STARTED_WITH) == ""


@pytest.mark.parametrize("size", ["1g", "1G", "1gb", "1024m", "1024", "1048576k"])
def test_memory_is_the_same_however_it_is_spelled(size: str) -> None:
    assert what_java_lacks({"spark.driver.memory": size}, STARTED_WITH) == ""


@pytest.mark.parametrize("size", ["1", "1t", "1000m", "much", ""])
def test_another_size_is_another(size: str) -> None:
    assert "spark.driver.memory is 1g and cannot become" in what_java_lacks({"spark.driver.memory": size}, STARTED_WITH)


def test_all_that_differs_is_named() -> None:
    asked = {
        "spark.jars": "/jars/iceberg-1.jar,/jars/mysql-9.jar,/jars/iceberg-2.jar",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    }
    assert what_java_lacks(asked, STARTED_WITH) == (
        "it does not have mysql-9.jar, iceberg-2.jar; spark.driver.memory is 1g and cannot become 2g; "
        "spark.driver.extraJavaOptions is not set and cannot become -Duser.timezone=UTC"
    )
