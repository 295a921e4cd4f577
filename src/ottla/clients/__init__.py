"""The clients: producer, consumer and admin client, and their common way to the brokers (`cluster/`)."""
