"""Every table and figure of the paper, with the controls it lacks, by one command."""
