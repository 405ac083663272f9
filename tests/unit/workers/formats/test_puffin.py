from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from producer.model.plan import VectorRef
from workers.formats.deletion_vector import DeletionVector
from workers.formats.puffin import PuffinWriter, read_footer, read_vector
from workers.runtime.errors import CorruptFile

FIXTURES = os.environ.get("ICEFLEET_FIXTURES", "")
golden = pytest.mark.skipif(not FIXTURES, reason="ICEFLEET_FIXTURES is unset: no files of other engines to read")

DATA_FILE = "s3://bucket/table/data/00000-0-abc.parquet"
IO = PyArrowFileIO()


def puffin(footer: bytes, flags: int = 0, blobs: bytes = b"") -> bytes:
    return b"PFA1" + blobs + b"PFA1" + footer + struct.pack("<iI", len(footer), flags) + b"PFA1"


def entry(**changes: Any) -> dict[str, Any]:
    """The footer's entry of a vector at offset 4, with changes; None leaves a key out."""
    properties = {"referenced-data-file": DATA_FILE, "cardinality": "3", **changes.pop("properties", {})}
    described = {
        "type": "deletion-vector-v1",
        "fields": [2147483645],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": 4,
        "length": len(BLOB),
        "properties": {key: value for key, value in properties.items() if value is not None},
        **changes,
    }
    return {key: value for key, value in described.items() if value is not None}


BLOB = DeletionVector.of([1, 2, 2**32 + 1]).to_blob()
REF = VectorRef(path="", offset=4, size=len(BLOB), cardinality=3)


def read(path: Path, content: bytes, data_file: str = DATA_FILE, **changes: Any) -> DeletionVector:
    path.write_bytes(content)
    return read_vector(IO, REF.model_copy(update={"path": str(path), **changes}), data_file)


def reason(action: Callable[[], object], path: Path | str) -> str:
    with pytest.raises(CorruptFile) as caught:
        action()
    assert caught.value.path == str(path)
    return caught.value.reason


class CountingIO(PyArrowFileIO):
    """Storage that notes each range it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[int, int]] = []

    def new_input(self, location: str) -> Any:
        source, ranges = super().new_input(location), self.ranges

        class Counting(InputFile):
            def __len__(self) -> int:
                return len(source)

            def exists(self) -> bool:
                return source.exists()

            def open(self, seekable: bool = True) -> Any:
                stream = source.open()

                class Stream:
                    def seek(self, offset: int, whence: int = 0) -> int:
                        return int(stream.seek(offset, whence))

                    def tell(self) -> int:
                        return int(stream.tell())

                    def read(self, size: int = -1) -> bytes:
                        ranges.append((stream.tell(), size))
                        return bytes(stream.read(size))

                    def close(self) -> None:
                        stream.close()

                return Stream()

        return Counting(location)


class FullIO(PyArrowFileIO):
    """Storage that takes some bytes and then no more."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def new_output(self, location: str) -> Any:
        target, full = super().new_output(location), self

        class Full(OutputFile):
            def __len__(self) -> int:
                return len(target)

            def exists(self) -> bool:
                return target.exists()

            def to_input_file(self) -> InputFile:
                return target.to_input_file()

            def create(self, overwrite: bool = False) -> Any:
                stream = target.create(overwrite)

                class Stream:
                    def write(self, content: bytes) -> int:
                        full.room -= len(content)
                        if full.room < 0:
                            raise OSError("no space left")
                        return int(stream.write(content))

                    def close(self) -> None:
                        stream.close()

                return Stream()

        return Full(location)


@golden
@pytest.mark.parametrize(
    ("name", "blobs"),
    [
        ("empty-puffin-uncompressed", []),
        ("sample-metric-data-uncompressed", [("some-blob", 4, 9, None), ("some-other-blob", 13, 83, None)]),
        ("sample-metric-data-compressed-zstd", [("some-blob", 4, 22, "zstd"), ("some-other-blob", 26, 77, "zstd")]),
    ],
)
def test_footers_of_the_reference_implementation(name: str, blobs: list[tuple[str, int, int, str | None]]) -> None:
    footer = read_footer(IO, f"{FIXTURES}/apache-iceberg/puffin/{name}.bin")
    assert [(blob.type, blob.offset, blob.length, blob.compression_codec) for blob in footer.blobs] == blobs
    assert footer.properties.get("created-by") == ("Test 1234" if blobs else None)


@golden
@pytest.mark.parametrize(
    ("name", "cardinalities"),
    [
        ("iceberg-go/single-blob-dv.puffin", [5]),
        ("iceberg-go/deletion-vector-v1.puffin", [5]),
        ("iceberg-go/multi-blob-dv.puffin", [3, 2]),
        (
            "impala/v3/iceberg_v3_deletion_vectors/data/00000-9-08e88179-85b6-4635-8b34-94b49abc87d9-00001-deletes.puffin",
            [1, 1],
        ),
    ],
)
def test_vectors_of_other_engines(name: str, cardinalities: list[int]) -> None:
    path = f"{FIXTURES}/{name}"
    content = Path(path).read_bytes()
    judged = [vector.to_vector().to_pylist() for vector in deletion_vectors_from_puffin_file(PuffinFile(content))]
    footer = read_footer(IO, path)
    assert len(footer.blobs) == len(cardinalities)
    for blob, cardinality, positions in zip(footer.blobs, cardinalities, judged, strict=True):
        ref = VectorRef(path=path, offset=blob.offset, size=blob.length, cardinality=cardinality)
        vector = read_vector(IO, ref, blob.properties["referenced-data-file"])
        assert vector.cardinality == cardinality
        assert vector.positions().tolist() == positions
        assert vector.to_blob() == content[blob.offset : blob.offset + blob.length]


@golden
def test_a_bare_blob_is_no_puffin_file() -> None:
    path = f"{FIXTURES}/duckdb/legacy_bare_deletion_vector/data/legacy-bare-deletion-vector.puffin"
    ref = VectorRef(path=path, offset=0, size=Path(path).stat().st_size, cardinality=1)
    assert "Puffin container is missing" in reason(lambda: read_vector(IO, ref, DATA_FILE), path)
    assert "Puffin container is missing" in reason(lambda: read_footer(IO, path), path)


def test_what_is_written_is_read_by_pyiceberg_and_by_us(tmp_path: Path) -> None:
    path = tmp_path / "new" / "vectors.puffin"
    vectors = {f"{DATA_FILE}-{number}-é": DeletionVector.of(range(number, 9_000, number)) for number in (1, 2, 7)}
    with PuffinWriter(IO, str(path)) as writer:
        placed = {name: writer.add_vector(name, vector) for name, vector in vectors.items()}
        size = writer.close()
    content = path.read_bytes()
    assert size == len(content)
    assert writer.close() == size

    for judged in deletion_vectors_from_puffin_file(PuffinFile(content)):
        assert judged.to_vector().to_pylist() == vectors[judged.referenced_data_file].positions().tolist()
    for name, (offset, length) in placed.items():
        assert content[offset : offset + length] == vectors[name].to_blob()
        ref = VectorRef(path=str(path), offset=offset, size=length, cardinality=vectors[name].cardinality)
        assert read_vector(IO, ref, name).positions().tolist() == vectors[name].positions().tolist()


def test_the_footer_is_what_the_spec_asks_for(tmp_path: Path) -> None:
    path = tmp_path / "vectors.puffin"
    with PuffinWriter(IO, str(path)) as writer:
        writer.add_vector(DATA_FILE, DeletionVector.of([1, 2, 2**32 + 1]))
    content = path.read_bytes()
    length, flags = struct.unpack("<iI", content[-12:-4])
    assert flags == 0
    footer = json.loads(content[-12 - length : -12])
    assert footer["blobs"] == [entry()]
    assert list(footer["properties"]) == ["created-by"]
    assert footer["properties"]["created-by"].startswith("icefleet")
    assert content == puffin(content[-12 - length : -12], blobs=BLOB)


def test_a_writer_without_vectors_makes_no_file(tmp_path: Path) -> None:
    with PuffinWriter(IO, str(tmp_path / "vectors.puffin")) as writer:
        assert writer.close() == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("closed", [False, True])
def test_an_error_in_the_block_removes_the_file(tmp_path: Path, closed: bool) -> None:
    path = tmp_path / "vectors.puffin"

    def fail() -> None:
        with PuffinWriter(IO, str(path)) as writer:
            writer.add_vector(DATA_FILE, DeletionVector.of([1]))
            assert path.exists()
            if closed:
                writer.close()
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("room", [0, 4, 4 + len(BLOB), 4 + len(BLOB) + 20])
def test_storage_that_fails_leaves_no_file(tmp_path: Path, room: int) -> None:
    def fail() -> None:
        with PuffinWriter(FullIO(room), str(tmp_path / "vectors.puffin")) as writer:
            writer.add_vector(DATA_FILE, DeletionVector.of([1, 2, 2**32 + 1]))

    with pytest.raises(OSError, match="no space left"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_stays(tmp_path: Path) -> None:
    path = tmp_path / "vectors.puffin"
    path.write_bytes(b"of another attempt")

    def overwrite() -> None:
        with PuffinWriter(IO, str(path)) as writer:
            writer.add_vector(DATA_FILE, DeletionVector.of([1]))

    with pytest.raises(FileExistsError):
        overwrite()
    assert path.read_bytes() == b"of another attempt"


def test_a_closed_writer_takes_no_more(tmp_path: Path) -> None:
    writer = PuffinWriter(IO, str(tmp_path / "vectors.puffin"))
    writer.close()
    with pytest.raises(ValueError, match="is closed"):
        writer.add_vector(DATA_FILE, DeletionVector.of([1]))


def test_only_the_ends_and_the_blob_are_read(tmp_path: Path) -> None:
    path = tmp_path / "vectors.puffin"
    large = DeletionVector.of(range(0, 2_000_000, 2))
    with PuffinWriter(IO, str(path)) as writer:
        for number in range(3):
            writer.add_vector(f"{DATA_FILE}{number}", large)
        offset, length = writer.add_vector(DATA_FILE, DeletionVector.of([3]))
        for number in range(3):
            writer.add_vector(f"{DATA_FILE}{number}-2", large)
        size = writer.close()
    counting = CountingIO()
    vector = read_vector(counting, VectorRef(path=str(path), offset=offset, size=length, cardinality=1), DATA_FILE)
    assert vector.positions().tolist() == [3]
    tail = 64 * 1024
    assert counting.ranges == [(size - tail, tail), (0, 4), (offset, length)]


def test_a_large_footer_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "vectors.puffin"
    with PuffinWriter(IO, str(path)) as writer:
        placed = [writer.add_vector(f"{DATA_FILE}-{number}", DeletionVector.of([number])) for number in range(2_000)]
    footer = read_footer(IO, str(path))
    assert [(blob.offset, blob.length) for blob in footer.blobs] == placed


def test_compressed_footers_are_read(tmp_path: Path) -> None:
    payload = pa.Codec("lz4").compress(json.dumps({"blobs": [entry()]}).encode(), asbytes=True)
    assert read(tmp_path / "a", puffin(payload, flags=1, blobs=BLOB)).positions().tolist() == [1, 2, 2**32 + 1]
    broken = puffin(payload[:-9], flags=1, blobs=BLOB)
    assert "decompressed" in reason(lambda: read(tmp_path / "b", broken), tmp_path / "b")


GOOD = puffin(json.dumps({"blobs": [entry()]}).encode(), blobs=BLOB)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "container is missing"),
        (b"PFA1", "incomplete"),
        (b"PFA1PFA1", "incomplete"),
        (GOOD[:-1], "incomplete"),
        (GOOD[1:], "container is missing"),
        (puffin(b"{}", flags=2), "unknown flags: 0x00000002"),
        (puffin(b"{}", flags=1 << 24), "unknown flags"),
        (b"PFA1PFA1{}" + struct.pack("<iI", 2**31 - 1, 0) + b"PFA1", "does not fit"),
        (b"PFA1PFA1{}" + struct.pack("<iI", -1, 0) + b"PFA1", "does not fit"),
        (b"PFA1PFB1{}" + struct.pack("<iI", 2, 0) + b"PFA1", "does not start with its magic"),
        (puffin(b"{}"), "wrong: Field required"),
        (puffin(b"not json"), "wrong"),
        (puffin(b'{"blobs":[]}'), "lists no blob at offset 4"),
        (puffin(json.dumps({"blobs": [entry(length=10_000)]}).encode(), blobs=BLOB), "outside of the file"),
        (puffin(json.dumps({"blobs": [entry(offset=0)]}).encode(), blobs=BLOB), "outside of the file"),
        (puffin(json.dumps({"blobs": [entry(type="some-sketch")]}).encode(), blobs=BLOB), "of type some-sketch"),
        (puffin(json.dumps({"blobs": [entry(**{"compression-codec": "lz4"})]}).encode(), blobs=BLOB), "compressed"),
        (
            puffin(json.dumps({"blobs": [entry(properties={"cardinality": "4"})]}).encode(), blobs=BLOB),
            "has 4 positions, its manifest 3",
        ),
        (
            puffin(json.dumps({"blobs": [entry(properties={"cardinality": None})]}).encode(), blobs=BLOB),
            "has None positions",
        ),
        (
            puffin(json.dumps({"blobs": [entry(properties={"referenced-data-file": "s3://x"})]}).encode(), blobs=BLOB),
            "belongs to s3://x, not to",
        ),
        (
            puffin(json.dumps({"blobs": [entry(properties={"referenced-data-file": None})]}).encode(), blobs=BLOB),
            "belongs to None",
        ),
        (puffin(json.dumps({"blobs": [entry()]}).encode(), blobs=BLOB[:-1] + b"\0"), "checksum"),
    ],
)
def test_wrong_files_say_what_is_wrong(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "vectors.puffin"
    assert expected in reason(lambda: read(path, content), path)


def test_the_manifest_and_the_file_must_agree(tmp_path: Path) -> None:
    path = tmp_path / "vectors.puffin"
    assert read(path, GOOD).cardinality == 3
    assert "no blob at offset 5" in reason(lambda: read(path, GOOD, offset=5), path)
    assert "no blob" in reason(lambda: read(path, GOOD, size=len(BLOB) - 1), path)
    assert "its manifest 4" in reason(lambda: read(path, GOOD, cardinality=4), path)
    assert "belongs to" in reason(lambda: read(path, GOOD, data_file="s3://bucket/table/data/other.parquet"), path)


def test_vectors_of_a_table_that_was_moved_are_read(tmp_path: Path) -> None:
    # Its metadata names the new folder, its Puffin files the old one.
    moved = DATA_FILE.replace("s3://bucket/table", "gs://elsewhere/moved")
    assert read(tmp_path / "vectors.puffin", GOOD, data_file=moved).cardinality == 3


def test_a_missing_file_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "vectors.puffin"
    ref = REF.model_copy(update={"path": str(path)})
    assert "missing" in reason(lambda: read_vector(IO, ref, DATA_FILE), path)
    assert "missing" in reason(lambda: read_footer(IO, str(path)), path)


class BrokenIO(PyArrowFileIO):
    def new_input(self, location: str) -> Any:
        raise OSError("the storage does not answer")


def test_storage_errors_stay_what_they_are() -> None:
    broken: FileIO = BrokenIO()
    with pytest.raises(OSError, match="does not answer"):
        read_vector(broken, REF.model_copy(update={"path": "s3://a"}), DATA_FILE)


@settings(deadline=None)
@given(st.integers(0, len(GOOD) - 1))
def test_every_truncation_is_noticed(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    path = tmp_path_factory.getbasetemp() / "truncated.puffin"
    assert reason(lambda: read(path, GOOD[:length]), path)


@settings(deadline=None)
@given(st.integers(0, len(GOOD) * 8 - 1))
def test_flipped_bits_are_noticed_or_change_nothing(tmp_path_factory: pytest.TempPathFactory, bit: int) -> None:
    damaged = bytearray(GOOD)
    damaged[bit // 8] ^= 1 << bit % 8
    path = tmp_path_factory.getbasetemp() / "flipped.puffin"
    try:
        vector = read(path, bytes(damaged))
    except CorruptFile:
        return
    # The footer has keys that no reader needs, like the snapshot id.
    assert vector.positions().tolist() == [1, 2, 2**32 + 1]
