"""Tells what kind of place a text names, and crawls it: a folder, an object store, a database, a cluster."""

import os
import re
from typing import Final

from headwater.lake.crawling.proposals import Crawl
from headwater.lake.errors import LakeUsageError

_BROKERS: Final = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:]+\]):\d+(?:,(?:[\w.-]+|\[[0-9a-fA-F:]+\]):\d+)*", re.ASCII)


def crawl(text: str) -> Crawl:
    """Proposes loads for what is in a place; a LakeUsageError where the text names none.

    >>> crawl("nowhere")
    Traceback (most recent call last):
    headwater.lake.errors.LakeUsageError: 'nowhere' is no folder, no jdbc: URL and no HOST:PORT of a broker
    """
    if text.startswith("jdbc:"):
        from headwater.lake.crawling.databases import crawl_database

        return crawl_database(text)
    if "://" in text or os.path.isdir(os.path.expanduser(text)):
        from headwater.lake.crawling.folders import crawl_folder

        return crawl_folder(text)
    if _BROKERS.fullmatch(text):
        from headwater.lake.crawling.topics import crawl_cluster

        return crawl_cluster(text)
    raise LakeUsageError(f"{text!r} is no folder, no jdbc: URL and no HOST:PORT of a broker")
