"""Build the optional Cython kernels; without a compiler, ottla uses the pure Python versions (``ottla --version``).

Everything else about the build is in pyproject.toml.
"""

from pathlib import Path
from subprocess import SubprocessError

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError


class OptionalBuildExt(build_ext):
    """A build that continues without the extensions if they cannot be compiled.

    ``Extension(optional=True)`` is not enough: an editable install still fails when the compiler does.
    """

    def run(self) -> None:
        try:
            super().run()
        except (BaseError, CCompilerError, SubprocessError, OSError) as error:
            self.warn(f"{error}\nThe compiled kernels were not built: ottla will use the slower Python versions.")
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
