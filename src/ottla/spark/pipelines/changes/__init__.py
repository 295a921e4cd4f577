"""Change data: `[[step]]` with latest.

The step handles each row by itself: it adds the columns `_version` and `_deleted`. The sinks after it do the rest with
an ordinary upsert, so the table itself is the state, and the order in which changes arrive does not matter:

    rows.py     the step: which of two changes of a key is newer, as one column
    sinks.py    the keys and the sequence of the sinks after it
    history.py  valid_to of the versions, derived from valid_from of the next ones
"""
