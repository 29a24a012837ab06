"""What every result can do: become a table, a file, a picture in a notebook."""
