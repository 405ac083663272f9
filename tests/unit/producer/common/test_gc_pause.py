"""Garbage collection is put off, and never for good."""

from __future__ import annotations

import gc

import pytest

from producer.common.gc_pause import uncollected


def test_no_cycles_are_looked_for_meanwhile() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_does_not_put_it_off_for_good() -> None:
    with pytest.raises(KeyError), uncollected():
        raise KeyError
    assert gc.isenabled()


def test_who_has_switched_it_off_finds_it_switched_off() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
