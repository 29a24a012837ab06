"""Local web pages: their files, and a server that only this machine can reach."""
