"""A pipeline in Python: the same keys as in TOML, with completion and type checks in editors."""

from ottla.spark.pipelines import DeadLetters, FileSink, Pipeline, Source, Sql, TopicSink

pipeline = Pipeline(
    name="trades",
    checkpoint="state/trades",
    bootstrap_servers="localhost:9092",
    trigger="available-now",
    sources=[
        Source(
            name="trades",
            topics=["trades"],
            format="avro",
            schema_file="trade.avsc",
            confluent_header=True,
            schema_id=1,
            group_id="trades-pipeline",
        ),
    ],
    steps=[
        Sql(
            name="by_symbol",
            sql="""
                SELECT symbol, sum(size) AS size, max_by(price, at) AS last_price
                FROM trades
                GROUP BY symbol
            """,
        ),
    ],
    sinks=[
        FileSink(name="table", input="trades", format="parquet", path="tables/trades"),
        TopicSink(name="latest", input="by_symbol", topic="latest-prices", key="symbol", mode="update"),
    ],
    dead_letters=DeadLetters(topic="trades.dead"),
)
