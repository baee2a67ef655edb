"""Every table and figure of the paper, with the controls it lacks, by one command."""

from common.version import __version__ as __version__
