"""Find problems in a pipeline before Spark starts."""
