"""A real broker process is killed with SIGKILL under load, again and again, and what it acknowledged is looked for.

torture.py         the rounds: how the broker dies, and everything that is verified after it is back
broker_process.py  the process: start, kill, terminate, read its log
doomed.py          a broker that kills itself at the n-th call of a function that changes a file
loads.py           producers of three client libraries, and a consumer that reads through all of it
churn.py           topics that are created, altered and deleted meanwhile
ledger.py          what was acknowledged
verification.py    what must be true of the logs after that

pipelines.py         the same for pipelines on Spark: the rounds, and what must be true in the end
pipeline_faults.py   the ways to end a round
pipeline_process.py  `ottla pipeline run`, which can be killed as a whole and in parts
pipeline_doom.py     a Spark application that kills itself between two steps of a micro-batch
pipeline_books.py    the numbers that go in, and reading what came out without Spark
"""
