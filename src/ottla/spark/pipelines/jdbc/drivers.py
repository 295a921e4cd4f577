"""The JDBC drivers of well-known databases, which Spark does not include."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver on Maven Central."""

    package: str
    name: str


DRIVERS = {
    "postgresql": Driver("org.postgresql:postgresql:42.7.14", "org.postgresql.Driver"),
    "mysql": Driver("com.mysql:mysql-connector-j:9.7.0", "com.mysql.cj.jdbc.Driver"),
    "mariadb": Driver("org.mariadb.jdbc:mariadb-java-client:3.5.11", "org.mariadb.jdbc.Driver"),
    "sqlserver": Driver(
        "com.microsoft.sqlserver:mssql-jdbc:13.6.1.jre11", "com.microsoft.sqlserver.jdbc.SQLServerDriver"
    ),
    "oracle": Driver("com.oracle.database.jdbc:ojdbc11:23.26.4.0.0", "oracle.jdbc.OracleDriver"),
    "db2": Driver("com.ibm.db2:jcc:12.1.5.0", "com.ibm.db2.jcc.DB2Driver"),
    "sqlite": Driver("org.xerial:sqlite-jdbc:3.54.1.0", "org.sqlite.JDBC"),
    "h2": Driver("com.h2database:h2:2.5.252", "org.h2.Driver"),
}


def driver_of(url: str) -> Driver | None:
    """The driver for a URL, if it is a well-known one.

    >>> driver_of("jdbc:sqlite:shop.db").name, driver_of("jdbc:derby:memory:x")
    ('org.sqlite.JDBC', None)
    """
    return DRIVERS.get(url.split(":")[1] if url.count(":") > 1 else "")


def spark_url(url: str) -> str:
    """The URL for Spark, which quotes names for MariaDB only if it takes it for MySQL.

    >>> spark_url("jdbc:mariadb://host/shop?ssl=true"), spark_url("jdbc:h2:mem:x")
    ('jdbc:mysql://host/shop?ssl=true&permitMysqlScheme', 'jdbc:h2:mem:x')
    """
    if not url.startswith("jdbc:mariadb:"):
        return url
    return f"jdbc:mysql:{url.removeprefix('jdbc:mariadb:')}{'&' if '?' in url else '?'}permitMysqlScheme"


def missing(url: str, name: str | None) -> str:
    """What to do if the driver cannot be loaded.

    >>> missing("jdbc:x:y", None)
    'there is no JDBC driver for jdbc:x: set spark.jars = "/path/to/driver.jar" under [spark], and driver in the sink'
    """
    kind = ":".join(url.split(":")[:2])
    known = driver_of(url)
    what = f"the JDBC driver {name} for {kind} is missing" if name else f"there is no JDBC driver for {kind}"
    if known is None:
        return f'{what}: set spark.jars = "/path/to/driver.jar" under [spark], and driver in the sink'
    return (
        f'{what}: set spark.jars.packages = "{known.package}" under [spark] to get it from Maven Central, '
        'or spark.jars = "/path/to/driver.jar"'
    )
