"""Build the optional Cython kernels; without a compiler the pure twin serves (see ``ottla --version``)."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [Extension("ottla.records._speedups", ["src/ottla/records/_speedups.pyx"], optional=True)],
        language_level=3,
    ),
)
