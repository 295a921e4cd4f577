"""OpenLineage: which datasets a pipeline reads and writes, and which columns come from which.

`queries.py` reads SQL, `columns.py` follows columns through the steps, `datasets.py` names what is read and written,
`reporting.py` sends the events of a run.
"""
