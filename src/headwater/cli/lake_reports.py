"""What a load says of itself: one line for people, a document for machines."""

from typing import TYPE_CHECKING, Any

from headwater.cli.output import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.lake.load.request import LoadReport


def report_lines(report: "LoadReport", *, planned: bool = False) -> list[str]:
    """What changes in the table, a line each, and what was loaded."""
    lines = [] if report.plan is None else [f"  {change.words}" for change in report.plan.changes]
    where = f"{report.source} → {report.table}"
    if planned:
        if report.plan is None:
            return [f"{where}: {report.news}"]
        schema = [f"  {field.name}: {field.type}" for field in report.plan.schema]
        return [
            f"{where}: {report.news} to load",
            "schema:",
            *schema,
            *(["changes:", *lines] if lines else ["no changes"]),
        ]
    if report.load_id is None:
        return [f"{where}: {report.news}"]
    parts = [counted(report.counts.rows, "row"), f"{report.counts.rows / max(report.write_seconds, 1e-3):,.0f} rows/s"]
    if report.counts.rescued:
        parts.append(f"{report.counts.rescued:,} with rescued fields")
    if report.counts.corrupt:
        parts.append(f"{report.counts.corrupt:,} corrupt")
    return [*lines, f"{where}: {', '.join(parts)}, {report.seconds:.1f} s (load {report.load_id})"]


def report_json(report: "LoadReport") -> dict[str, Any]:
    """The same for machines."""
    return {
        "table": report.table,
        "source": report.source,
        "news": report.news,
        "load_id": report.load_id,
        "rows": report.counts.rows,
        "rescued": report.counts.rescued,
        "corrupt": report.counts.corrupt,
        "attempts": report.attempts,
        "seconds": round(report.seconds, 3),
        "schema": None if report.plan is None else {field.name: str(field.type) for field in report.plan.schema},
        "changes": [] if report.plan is None else [change.words for change in report.plan.changes],
    }


def answer_json(answer: "pa.Table") -> list[dict[str, Any]]:
    """Rows as objects; what JSON has no word for becomes text."""
    return [{name: _plain(value) for name, value in row.items()} for row in answer.to_pylist()]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return str(value)
