"""``icefleet demo``: TPC-H lineitem, filled by a stream with equality deletes, read, converted and read again.

Each step stands on its own: :mod:`lineitem` generates rows, :mod:`stream` writes them and their changes,
:mod:`reading` reads the table with an independent reader, :mod:`conversion` converts it, :mod:`page` shows it.
"""
