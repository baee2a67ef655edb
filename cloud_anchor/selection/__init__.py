"""Which tokens of an unfinished run are sent, with or without the edge model."""
