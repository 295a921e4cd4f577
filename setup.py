"""Build the optional Cython kernels. Without a compiler, their pure Python twins are used (see ``ottla --version``).

pyproject.toml has the rest of the build.
"""

from pathlib import Path
from subprocess import SubprocessError

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError


class OptionalBuildExt(build_ext):
    """A build that continues without the extensions if they do not compile.

    ``Extension(optional=True)`` is not enough: an editable install still fails.
    """

    def run(self) -> None:
        try:
            super().run()
        except (BaseError, CCompilerError, SubprocessError, OSError) as error:
            self.warn(f"{error}\nThe Cython kernels were not built. ottla uses the slower Python versions.")
            self.extensions = []


PACKAGES = ("net/server", "protocol", "records")
KERNELS = [
    Extension(
        ".".join(["ottla", *package.split("/"), source.stem]),
        [str(source)],
        depends=sorted(map(str, source.parent.glob("*.pxi"))),
    )
    for package in PACKAGES
    for source in sorted(Path("src/ottla", package).glob("*.pyx"))
]

setup(
    ext_modules=cythonize(KERNELS, language_level=3),
    cmdclass={"build_ext": OptionalBuildExt},
)
