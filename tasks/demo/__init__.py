"""``icefleet demo``: TPC-H lineitem, filled by a stream with equality deletes, converted, compacted, read at each step.

Imports every other part of this package.
Open demonstration.py first: lineitem.py writes rows, reading.py reads them with an independent reader, page.py prints.
"""
