"""The records of jobs beside the table they work on. Storage is the only truth about a job.

Imports common, model and iceberg.
Open job_store.py first.
"""
