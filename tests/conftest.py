"""What every test has: messages are checked for fields that do not exist."""

from ottla.protocol import _compiler

_compiler.STRICT = True
