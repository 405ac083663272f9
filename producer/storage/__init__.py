"""Files of tables on local disks and object stores: where they may lie, and few requests to read and write them.

Imports common.
Open files.py first; object_store_io.py is the access to object stores.
"""
