"""Infer a pipeline from sample records of a topic, for `ottla pipeline init`. No I/O, no Spark.

`types.py` infers the types of JSON values and CSV cells, `guessing.py` the format of values, the event time and a key,
and `text.py` writes the commented pipeline and its first test.
"""

from ottla.spark.pipelines.inference.guessing import Guess, guess
from ottla.spark.pipelines.inference.text import case_text, pipeline_text

__all__ = ["Guess", "case_text", "guess", "pipeline_text"]
