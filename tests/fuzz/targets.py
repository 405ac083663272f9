"""What is fuzzed: everything that is read from outside, each with valid bytes and what may come of others.

A target takes any bytes. It returns when what it read is right or is refused with an error of ours, and raises
otherwise; whoever calls it looks after time, memory and crashes.
"""

from __future__ import annotations

from pyiceberg.manifest import DataFileContent

from tests.fuzz import contents, documents
from tests.fuzz.samples import Samples
from tests.fuzz.target import Target


def targets(samples: Samples) -> dict[str, Target]:
    """All targets by name."""
    made = [
        documents.messages(),
        documents.records(samples),
        documents.metadata(samples),
        documents.manifest_list(samples),
        documents.manifests(samples),
        contents.keys(samples, DataFileContent.EQUALITY_DELETES),
        contents.keys(samples, DataFileContent.DATA),
        contents.rows(samples),
        contents.position_deletes(samples),
        contents.puffin(samples),
        contents.vector(),
        contents.roaring(),
    ]
    return {target.name: target for target in made}
