"""Every example and option of Spark's Kafka integration guide, with `format("kafka")` and `format("ottla")`."""
