"""Pages for browsers of this machine: their parts, and a server nobody else reaches."""
