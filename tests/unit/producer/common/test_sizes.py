"""Sizes as people write them, in powers of 1024."""

from __future__ import annotations

import pytest

from producer.common.sizes import count_text, parse_size, size_text

MB = 1 << 20


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("134217728", 128 * MB),
        ("75b", 75),
        ("1K", 1024),
        ("128MB", 128 * MB),
        ("128MiB", 128 * MB),
        (" 128 mb ", 128 * MB),
        ("1.5GB", 1536 * MB),
        ("2t", 2 << 40),
        ("1PB", 1 << 50),
    ],
)
def test_what_people_write(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1.5", "1e9", "12XB", "12ib", "1 000", "1.MB", "0x10", "many"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is no size: give bytes, or a size such as 128MB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1.0 KB"),
        (128 * MB, "128.0 MB"),
        (MB - 1, "1.0 MB"),
        (1536 * MB, "1.5 GB"),
        (5000 << 50, "5,000.0 PB"),
    ],
)
def test_what_people_read(size: int, text: str) -> None:
    assert size_text(size) == text


def test_what_is_shown_can_be_written() -> None:
    assert parse_size(size_text(512 * MB)) == 512 * MB


def test_one_is_not_many() -> None:
    assert [count_text(number, "unit") for number in (0, 1, 2, 1200)] == ["0 units", "1 unit", "2 units", "1,200 units"]
    assert count_text(1, "batch", "batches") == "1 batch"
    assert count_text(3, "batch", "batches") == "3 batches"
