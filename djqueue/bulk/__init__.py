"""Jobs from the lines of a file."""
