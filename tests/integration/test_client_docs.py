"""What the pages of the clients show is true: the Python of every section runs against a broker."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from peers.headwater import HeadwaterProcess

from .test_docs import ROOT, blocks

# admin.md starts brokers of its own: `test_docs.py` runs it.
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("producer", "consumer", "coming-from")]
SETTINGS = {
    "auto.create.topics.enable": "true",
    "num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadwaterProcess]:
    with HeadwaterProcess(tmp_path_factory.mktemp("docs"), SETTINGS) as running:
        yield running


def sections() -> list[object]:
    return [
        pytest.param(page, heading, id=f"{page.stem}: {heading}")
        for page in PAGES
        for heading in dict.fromkeys(block.heading for block in blocks(page) if block.language == "python")
    ]


@pytest.mark.parametrize(("page", "heading"), sections())
def test_the_python_of_a_section_runs(page: Path, heading: str, broker: HeadwaterProcess, tmp_path: Path) -> None:
    """The blocks of a section are one program; the address that they name is that of a running broker."""
    found = [block.text for block in blocks(page) if (block.language, block.heading) == ("python", heading)]
    program = tmp_path / "program.py"
    program.write_text("\n".join(found).replace("localhost:9092", broker.bootstrap), "utf-8")
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_page_has_examples() -> None:
    assert {page for page in PAGES if any(block.language == "python" for block in blocks(page))} == set(PAGES)
