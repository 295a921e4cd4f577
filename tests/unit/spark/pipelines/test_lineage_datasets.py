"""The names of what pipelines read and write."""

from __future__ import annotations

import pytest

from ottla.spark.pipelines.lineage.datasets import directory, jdbc


@pytest.mark.parametrize(
    ("url", "namespace"),
    [
        ("jdbc:postgresql://db1:5433,db2:5432/shop", "postgres://db1:5433"),
        ("jdbc:postgresql://me:secret@db1,db2/shop", "postgres://db1:5432"),
        ("jdbc:postgresql://[::1]/shop", "postgres://::1:5432"),
    ],
)
def test_the_first_of_several_hosts_names_a_database(url: str, namespace: str) -> None:
    assert jdbc(url, "orders") == (namespace, "shop.public.orders")


def test_a_directory_has_no_secrets_in_its_name() -> None:
    assert directory("s3a://key:secret@lake/orders") == ("s3://lake", "orders")
    assert directory("abfss://container@account/orders") == ("abfss://container@account", "/orders")


def test_a_local_path_may_have_characters_of_urls() -> None:
    assert directory("/data/a#b?c") == ("file", "/data/a#b?c")
    assert directory("file:/data/orders/") == ("file", "/data/orders")
