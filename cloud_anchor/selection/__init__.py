"""Selection of the tokens of an unfinished run that are sent, with or without the edge model."""
