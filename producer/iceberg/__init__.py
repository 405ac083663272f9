"""Table metadata, read and written: Avro, manifests, snapshots, delete file index, catalogs.

Imports common and model.
Open manifest_reader.py first, then snapshot_producer.py.
"""
