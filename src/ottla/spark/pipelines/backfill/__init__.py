"""Process a range of records again, into the same tables, next to the running pipeline.

    plan.py     which offsets, and why a sink cannot do it
    rows.py     the rows of these records: the steps of the pipeline as a batch
    run.py      write them, each sink in one transaction

The pipeline owns the records that it has not finished yet, so a range ends there at the latest. Below that, a sink
without keys replaces the rows of the range by their origin, and a sink with keys merges them by their sequence.
"""
