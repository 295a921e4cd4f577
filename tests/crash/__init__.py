"""Kill a real broker process with SIGKILL under load, many times, and check everything that it acknowledged.

torture.py         the rounds: how the broker dies, and the checks after each restart
broker_process.py  the process: start, kill, terminate, read its log
doomed.py          a broker that kills itself at the n-th call of a function that changes a file
loads.py           producers of three client libraries, and a consumer that reads all the time
churn.py           topics that are created, altered and deleted meanwhile
ledger.py          what was acknowledged
verification.py    the checks of the logs

pipelines.py         the same for pipelines on Spark: the rounds and the final checks
pipeline_faults.py   the ways to end a round
pipeline_process.py  `ottla pipeline run`, which can be killed as a whole and in parts
pipeline_doom.py     a Spark application that kills itself between two steps of a micro-batch
pipeline_books.py    the input, and reading the output without Spark
pipeline_sinks.py    tables of all kinds, for --sink
pipeline_report.py   how many rounds hit which kind
"""
