"""What every room uses: commands, files, lazy exports, progress, the base error."""

from common.version import __version__ as __version__
