"""Planning: the metadata of one snapshot becomes a plan of units. Reads manifests, writes nothing.

Imports common, model, iceberg and state.
Open planner.py first; operations.py lists the operations, each in a folder of its own.
"""
